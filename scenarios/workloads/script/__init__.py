"""A user's training script, run unmodified as the ranks of a scenario.

`process` runs in a rank's process, `requests` connects it to the simulator, `program` answers; `gpu` simulates a GPU,
`host` counts the CPU's work, `meeting` serves ranks that a script starts, `recording` replays and compares ranks.
"""
