"""Compare several runs with a base: frames of their differences, and tables of these."""
