"""`twinstep docs`: the documentation's pages in a terminal."""
