"""NCCL: which algorithm it chooses (`tuning`, `model`), and what that loads on links (`plan`, `transport`)."""
