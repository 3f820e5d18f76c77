"""The cost of training by a prediction, and the uncertainty of a prediction."""
