"""Draws ids, and computes the expected number of distinct ones."""
