"""Values of tensors on the simulated GPU: which are known, and what a script gets that reads an unknown one."""
