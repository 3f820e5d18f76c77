"""Sweeps and searches: many variations of a scenario, played in processes or on a Dask cluster.

The rows of their points and the tables of these are in `reports/study`.
"""
