"""Predicts published times row by row: steps and collectives (`simulated`), single operators (`operators`).

The files' rows and the tables of predictions are in `reports/published`.
"""
