"""Searches a study's space for its best points with Optuna, which proposes points and learns their results."""
