"""Which values of tensors on the simulated GPU are known, and what is done where a script reads one."""
