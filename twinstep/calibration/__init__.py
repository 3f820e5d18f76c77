"""The command `calibrate`: measures this machine and writes its profile.

Probes and fits are in `real/calibration`; what an operator ought to take, in `sim/operators`.
"""
