"""Code in the process of a script's rank, simulated or real: its process group, steps, gradients and clock."""
