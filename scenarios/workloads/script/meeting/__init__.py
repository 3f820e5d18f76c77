"""Ranks that a script starts itself, the stores through which ranks rendezvous, and point-to-point messages."""
