"""The real world: the same programs over torch.distributed."""
