"""Studies: the rows of their points as one data set, and tables of them."""
