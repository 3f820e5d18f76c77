"""Measures what restarts and checkpoints take on this machine, and writes it as a file that scenarios include."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from real.job.elastic import ElasticJob
from real.job.kills import Kill
from real.job.timeline import JobTimes
from scenarios.config.scenario import Scenario, TrainingJob
from scenarios.seam.errors import ScenarioError
from twinstep.options import write_new
from twinstep.real_jobs.measured import run_real

# Checkpoints alternate between two sizes; both kinds of kills meet both.
_SIZES = (16_000_000, 256_000_000)
_INTERVAL, _STEPS = 4, 28
_KILLS = {6: "rank", 10: "rank", 14: "host", 18: "host", 22: "rank", 26: "host"}


def calibrate(scenario: Scenario, job: TrainingJob, out: Path, emulate: str | None) -> str:
    """Run a job of `scenario`'s program with kills, write what they took to a new file, and return its text.

    Raises:
        ScenarioError: the file exists, or cannot be written.
    """
    if out.exists() or not out.parent.is_dir():
        raise ScenarioError(f"--calibrate = {out}: expected a new file in a folder that exists")
    cluster = scenario.cluster
    kills = [
        Kill(what=what, number=(number * 7) % (cluster.world_size if what == "rank" else cluster.hosts), step=step)
        for number, (step, what) in enumerate(_KILLS.items())
    ]
    sizes = tuple(tuple([size // cluster.world_size] * cluster.world_size) for size in _SIZES)
    with tempfile.TemporaryDirectory() as folder:
        real = ElasticJob(
            scenario=scenario.with_run(payload="values", ranks="each", steps=_STEPS),
            folder=Path(folder, "job"),
            interval_steps=_INTERVAL,
            sizes=sizes,
            restarts=2 * len(kills),
        )
        times, _ = run_real(real, kills, emulate)
    text = text_of(times, real)
    write_new(str(out), text)
    return text


def text_of(times: JobTimes, real: ElasticJob) -> str:
    """Return the file of what a job's kills and checkpoints took."""
    by_kind = {
        what: [parts for kill, parts in zip(times.kills, times.parts, strict=True) if kill.loses_host == is_host]
        for what, is_host in (("rank", False), ("host", True))
    }
    ranks, hosts = by_kind["rank"], by_kind["host"]
    overhead_s, write_s_per_byte = _line([(_bytes_at(real, step), s) for step, s in times.checkpoint_s.items()])
    loaded = [
        (_bytes_at(real, step - step % _INTERVAL), parts["restore"])
        for step, parts in zip(_KILLS, times.parts, strict=True)
    ]
    restore_rate = sum(size for size, _ in loaded) / max(sum(s - overhead_s for _, s in loaded), 1e-3)
    formed_s = fmean(parts["formed"] for parts in ranks)
    replacement_s = max(fmean(parts["formed"] for parts in hosts) - formed_s, 0.0)
    cluster = real.scenario.cluster
    return f"""\
# Measured by `twinstep run-job --calibrate` with {cluster.world_size} ranks on {cluster.hosts} hosts.
[job.recovery]
detection = "{_mean(ranks, "detection")} s"
schedule = "{formed_s:.3f} s"
start = "{_mean([*ranks, *hosts], "start")} s"
setup = "{_mean([*ranks, *hosts], "setup")} s"
setup_per_rank = "0 s"
replacement = "{replacement_s:.3f} s"

[[job.failures.kinds]]
name = "rank"

[[job.failures.kinds]]
name = "host"
loses_host = true
detection = "{_mean(hosts, "detection")} s"

[job.checkpoint]
store_rate = "{1e-6 / write_s_per_byte:.1f} MB/s"
host_rate = "{1e-6 / write_s_per_byte:.1f} MB/s"
overhead = "{overhead_s:.3f} s"
restore_rate = "{1e-6 * restore_rate:.1f} MB/s"
"""


def _bytes_at(real: ElasticJob, step: int) -> int:
    """Return the bytes of all ranks in the checkpoint after so many steps."""
    return sum(real.size_at(step, rank) for rank in range(len(real.sizes[0])))


def _mean(parts: Sequence[dict[str, float]], name: str) -> str:
    return f"{fmean(each[name] for each in parts):.3f}"


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return seconds at no byte, and seconds a byte, of the line through the medians of both sizes."""
    by_size: dict[int, list[float]] = {}
    for size, seconds in points:
        by_size.setdefault(size, []).append(seconds)
    (small, small_s), (large, large_s) = ((size, float(np.median(of))) for size, of in sorted(by_size.items()))
    slope = max((large_s - small_s) / (large - small), 1e-12)
    return max(small_s - slope * small, 0.0), slope
