"""Sweeps: many variations of a scenario, simulated by this machine's processes or on a Dask cluster."""
