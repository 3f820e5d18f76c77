"""What is computed and sent: scenarios, workloads, planner, sparse exchange, compression, and the interface to
backends.

This package imports no other package of the project, and nothing in it says how long anything takes.
"""
