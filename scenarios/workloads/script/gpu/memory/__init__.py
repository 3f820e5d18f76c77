"""A simulated GPU's memory: the script's tensors, and what torch's caching allocator reserves for them."""
