"""Pure functions from a run's frames to frames: times of steps, critical path, waits, loads of links, stragglers.

Nothing here prints or draws.
"""
