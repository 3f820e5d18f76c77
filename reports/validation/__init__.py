"""The folder of a validation, and tables of its predictions' errors."""
