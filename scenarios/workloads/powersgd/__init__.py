"""The program `powersgd`: gradients of given shapes, reduced with a compression."""
