"""Several runs beside a base: frames of their differences, and tables of these."""
