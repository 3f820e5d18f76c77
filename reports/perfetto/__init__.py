"""Write a run as a Perfetto trace."""
