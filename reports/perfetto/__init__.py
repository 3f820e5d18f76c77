"""Writes a run as a Perfetto trace."""
