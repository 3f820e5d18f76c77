"""The program `powersgd`: the reduction of gradients of given shapes, with compression."""
