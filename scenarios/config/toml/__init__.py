"""Reads and checks scenario files: sections derived from frozen values, all mistakes of a file at once."""
