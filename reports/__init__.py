"""The reading room: frames, tables and comparisons of runs."""
