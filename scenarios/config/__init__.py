"""A scenario as frozen values, and the hardware it names: clusters, GPUs, hosts' costs, faults.

Files are read and checked in `toml`, values of a command line are laid over them in `overrides`.
"""
