"""Embedding tables on a rank: look-up and update on CPU, GPU and in the simulator, caches, and what they cost."""
