"""Tests; each of their processes computes on one thread, as a real rank does."""

import os

# The tests' processes share the cores: threads of OpenMP that wait for each other there take twice the time.
os.environ["OMP_NUM_THREADS"] = "1"
