"""What the planner expects of a shard: milliseconds (`perf`) and bytes (`storage`), as TorchRec 1.8 counts them."""
