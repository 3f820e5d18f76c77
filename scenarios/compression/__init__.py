"""Gradient compression, as coroutines over a Rank."""
