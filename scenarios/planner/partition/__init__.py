"""Where the shards of a proposal go: TorchRec's partitioners, and the state of ranks that they fill."""
