"""A GPU simulated in a script's process: operators become kernels, tensors have shapes and some known values."""
