"""Predicts published times row by row: steps and collectives (`simulated`), single operators (`operators`)."""
