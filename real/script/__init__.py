"""Runs a user's training script as a rank: notes its calls, then times its steps with the recording off."""
