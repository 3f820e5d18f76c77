"""A simulated GPU's memory: what a script takes of it, and what torch's caching allocator reserves for that."""
