"""NCCL's own tuning model: searched topologies, and the time it expects of each algorithm and protocol."""
