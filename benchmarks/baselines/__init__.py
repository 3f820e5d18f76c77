"""What predictions are held against: models that others use for the same purpose, set up as they would."""
