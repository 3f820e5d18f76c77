"""The simulator's backend: a rank's operations, where calls meet, and the ledgers of steps, kernels and operators."""
