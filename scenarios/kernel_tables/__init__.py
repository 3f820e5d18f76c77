"""Files of measured operators: their rows, and how rows are made from the calls of a profiler's trace.

How a table corrects a prediction is in `sim/operators/tables`.
"""
