"""Watches the ranks of a run: who waits for whom, who has died, and what of a run is saved (`recovery`)."""
