"""Searches a study's space for its best points with Optuna, which asks for points and is told how they came out."""
