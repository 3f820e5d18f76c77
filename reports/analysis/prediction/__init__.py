"""What a prediction is worth: what its samples cost, and how far off it may be."""
