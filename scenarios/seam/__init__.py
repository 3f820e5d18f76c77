"""The interface between programs and backends: `Rank`, `Backend`, `Program`, collectives, and what a run records.

What stands here is the same in both worlds; users' programs may import it (docs/seam.md).
"""
