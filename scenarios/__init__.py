"""What is computed and sent: scenarios, workloads, planner, exchange, compression, and the seam to backends.

It knows no other package, and nothing here says how long anything takes.
"""
