"""Where the shards of embedding tables go."""
