"""Sparse features and their exchange between ranks."""
