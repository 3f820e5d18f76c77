"""Read nccl-tests' output, and fit a profile's NCCL figures to it."""
