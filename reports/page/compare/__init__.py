"""The pages of a comparison and of a validation."""
