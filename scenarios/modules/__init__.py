"""A user's own torch.nn.Module as a program: traced, described for the laws, fused, and run on a rank.

Sharded parameters are in `fully_sharded`. Scripts that are run as they are have `workloads/script`.
"""
