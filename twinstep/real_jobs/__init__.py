"""The use case of a job on real ranks: it is run, predicted with the same kills, and both are compared.

In it: the command (`cli`), the prediction (`predicted`), and what is measured of this machine for it (`calibration`).
The job itself is `real.job`; what is predicted of it is `sim.job`.
"""
