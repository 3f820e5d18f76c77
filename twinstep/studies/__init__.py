"""Sweeps: many variations of a scenario, played on this machine's processes or on a Dask cluster."""
