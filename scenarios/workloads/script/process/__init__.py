"""What runs in the process of a script's rank, in both worlds: its process group, steps, gradients and clock."""
