"""Modules with sharded parameters, gathered unit by unit as torch's fully_shard does."""
