"""Ranks that a script starts itself, the stores in which they meet, and the messages between them."""
