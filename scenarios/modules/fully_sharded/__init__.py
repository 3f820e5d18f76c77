"""A module whose parameters are in shards, gathered unit by unit as torch's fully_shard does it."""
