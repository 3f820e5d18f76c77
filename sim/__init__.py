"""The simulator: predicts when everything that a program issues would happen.

Time is in `engine`, what operators take in `operators`, hosts in `hosts`, libraries in `gloo` and `nccl`.
It knows nothing of real ranks and of reports.
"""
