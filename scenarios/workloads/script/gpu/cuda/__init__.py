"""torch.cuda as a script sees it: devices, streams, events, graphs, generators, and the table of its names."""
