"""Predict the time of one published operator by laws and tables, from the cells of its row."""
