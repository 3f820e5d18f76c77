"""The kinds of cases that `check` draws: one file each, with what the case runs and what it must give."""
