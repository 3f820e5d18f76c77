"""Starts the ranks of a run as processes, here or under torchrun or srun, and lets them find each other.

What happens to them while they run is in `supervise`.
"""
