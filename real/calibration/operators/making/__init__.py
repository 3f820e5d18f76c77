"""Makes the tensors of an operator that a table describes, and a function that runs it."""
