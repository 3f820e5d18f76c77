"""The interface between programs and backends: `Rank`, `Backend`, `Program`, collectives, and what a run records.

Both worlds, simulated and real, share this code; users' programs may import it (docs/contributing/seam.md).
"""
