"""Read torch.profiler's exported traces (Chrome trace JSON) as a run, and as operators with their times."""
