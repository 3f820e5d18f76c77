"""Recordings of ranks' requests: written to a file, compared between ranks, and replayed, also for a larger world."""
