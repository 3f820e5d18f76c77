"""Measures this machine and writes its profile: `python -m real calibrate`; its probes and fits are in `real`."""
