"""Recordings of a script's ranks: replayed, also for other ranks of a class, compared, and made of few ranks."""
