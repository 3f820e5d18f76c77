"""Holds predictions against measurements of this machine: `python -m real validate`."""
