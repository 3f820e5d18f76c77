"""The programs that ship with Twinstep, one workload a file or folder; `build` makes the one that a scenario names."""
