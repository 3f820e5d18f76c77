"""The folder of a validation, and tables of how far its predictions are off."""
