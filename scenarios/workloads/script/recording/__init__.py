"""What ranks asked: written to a file, compared, and played again, also for the ranks of a larger world."""
