"""A user's training script, run unmodified as the ranks of a scenario.

`process` is what runs in a rank's process, `requests` what it asks, `program` what answers; `gpu` pretends a GPU,
`host` counts the CPU's work, `meeting` serves ranks that a script starts, `recording` keeps and plays calls.
"""
