"""Estimates of a shard's cost in milliseconds (`perf`) and bytes (`storage`), as in TorchRec 1.8."""
