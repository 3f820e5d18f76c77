"""A scenario as frozen values, and the hardware that it names: clusters, GPUs, host costs, faults.

`toml` reads and checks files; `overrides` replaces their values by those of a command line or a study.
"""
