"""Predicts the time of one published operator by laws and tables, from what its row says."""
