"""[job] of a scenario file: its checks, and the failure profile that it names."""
