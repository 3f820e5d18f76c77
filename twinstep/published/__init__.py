"""Predict published times row by row: steps and collectives (`simulated`), single operators (`operators`).

`reports/published` reads the files' rows and tabulates the predictions.
"""
