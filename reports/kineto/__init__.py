"""Reads what torch.profiler exported (Chrome trace JSON) as a run, and as operators with their times."""
