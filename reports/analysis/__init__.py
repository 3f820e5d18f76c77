"""Pure functions from a run's frames to frames: step times, critical path, waits, loads of links, stragglers.

Nothing here prints or draws.
"""
