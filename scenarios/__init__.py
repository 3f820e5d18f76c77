"""Scenarios, workloads, planner, sparse exchange, compression, and the interface to backends: all that is computed and
sent.

The package imports no other package of the project, and nothing in it says how long anything takes.
"""
