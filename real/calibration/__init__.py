"""Measures what a machine takes, and fits a hardware profile to it.

A package for each part: `kernels` of a CPU core, `operators` of a GPU, the `host` of a GPU, the `network`.
The command `calibrate`, which joins them, is in `twinstep/calibration`.
"""
