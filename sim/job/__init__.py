"""A job of days, as a discrete-event model of steps in bulk, checkpoints, failures and restarts.

In it: the model's numbers (`model`), one job's events (`play`), many jobs (`sample`), closed forms and the best
checkpoint interval. Not in it: how long steps and checkpoints take, which `twinstep.jobs` finds out.
"""
