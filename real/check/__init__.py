"""The command `check`: ranks run random cases, and each result is compared with the simulator's.

Kinds of cases are in `cases`; how a wrong case is made small and shown is in `program` and `falsify`.
"""
