"""TorchRec's partitioners, which place the shards of a proposal, and the state of ranks that they update."""
