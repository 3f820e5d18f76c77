"""A small job whose step is given, for tests."""

from __future__ import annotations

from pathlib import Path

JOB = """
[cluster]
profile = "dgx_h100"
hosts = 4
cost.usd_per_gpu_hour = 2.0

[run]
batch_size = 1000

[job]
days = 7
step = "1 s"
spare_hosts = 1
draws = 20
evaluation = "5 min"
checkpoint = { size = "1 TB", store_rate = "20 GB/s", interval = "30 min" }

[[job.failures.kinds]]
name = "hardware"
per_gpu_day = 0.02
loses_host = true
repair = "2 h"

[[job.failures.kinds]]
name = "software"
per_day = 1
"""


def write(folder: Path, text: str = JOB) -> Path:
    """Write the job's file into a folder."""
    path = folder / "small_job.toml"
    path.write_text(text)
    return path
