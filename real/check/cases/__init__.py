"""The kinds of cases that `check` draws: one file each, with the case's program and its expected result."""
