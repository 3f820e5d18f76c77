"""A GPU that is simulated in a script's process: operators become kernels, tensors have shapes and some values."""
