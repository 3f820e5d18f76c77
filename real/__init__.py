"""Runs programs on real processes over torch.distributed.

Ranks (`rank`) over gloo or NCCL (`libraries`), started by `launch`, watched by `supervise`; users' scripts in `script`.
It does not know the simulator: what needs both, such as validation, is in `twinstep`.
"""
