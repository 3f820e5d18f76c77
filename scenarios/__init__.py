"""The language and the workload: everything that decides what is computed and sent."""
