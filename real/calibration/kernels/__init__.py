"""Measures kernels on one core or GPU (`probes`), and fits a profile's rates and overheads to them (`fit`)."""
