"""Embedding tables on a rank: lookup and update on CPU, GPU and in the simulator, caches, and their costs."""
