"""Reads nccl-tests' output, and fits a profile's NCCL figures to it."""
