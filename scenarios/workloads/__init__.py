"""The programs of Twinstep, one file or folder per workload; `build` makes the program that a scenario names."""
