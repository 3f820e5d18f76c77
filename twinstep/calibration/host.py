"""Command `python -m real calibrate --host`: a profile with this machine's host prices of eager PyTorch, else as
`--like`.

Snippets of training are counted as predictions count them, and timed on this machine's GPU; prices are fitted to both.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import torch

from real.calibration.host.counted import count
from real.calibration.host.fit import PRICES, HostFit, TimedSnippet, fit, judge, together
from real.calibration.profile import describe_measurement, profile_text
from real.launch.launcher import RunEnded
from reports.sections.calibration import CalibrationView
from scenarios.config import provenance
from scenarios.config.hardware import Cluster
from scenarios.config.host_costs import Eager
from scenarios.config.load import load_profile
from scenarios.owned_folder import scratch_folder
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError
from twinstep.calibration.snippets import HELD_OUT, SNIPPETS
from twinstep.calibration.telling import tell

_SECONDS = 12.0
# Time limit for loading libraries and the first runs, besides `_SECONDS`.
_LIMIT_S = 180.0
_SCRIPT = Path(__file__).with_name("snippets.py")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFound:
    """The fit, the snippets that it is fitted to, and the snippets that check it."""

    fit: HostFit
    timed: list[TimedSnippet]
    held_out: list[TimedSnippet]

    @property
    def groups(self) -> tuple[provenance.ErrorGroup, ...]:
        """The errors of the prices, for a profile's [measured]."""
        return (judge(self.timed, self.fit.eager),)


def check_host(options: argparse.Namespace, like: Cluster) -> None:
    """Refuse options and machines that cannot measure with --host.

    Raises:
        ScenarioError: in one sentence.
    """
    if like.host.gpu.device.runs_on_cores:
        raise ScenarioError(
            f"--like = '{options.like}': expected a profile of GPUs with --host; beside a CPU, what its host does is in"
            " the kernels' times"
        )
    if options.ranks_per_host != 1:
        raise ScenarioError(
            f"--ranks-per-host = {options.ranks_per_host}: expected 1 with --host, which measures one process"
        )
    if not torch.cuda.device_count():
        raise ScenarioError(f"--like = '{options.like}': expected a machine with a CUDA device for --host")


def calibrate_host(options: argparse.Namespace, command: str) -> None:
    """Measure, fit, write the profile, and show its errors.

    Raises:
        RunEnded: the snippets did not finish.
        ProgramError: the snippets could not be counted.
    """
    began_s = time.monotonic()
    like = load_profile(options.like)
    with ProgressLine(quiet=options.quiet, ticks=True) as bar:
        result = measure_host(like, bar)
    gpu = dataclasses.replace(like.host.gpu, eager=result.fit.eager)
    cluster = dataclasses.replace(like, host=dataclasses.replace(like.host, gpu=gpu))
    measured = describe_measurement(command, 1, began_s, result.groups)
    remarks = {
        "": f"Written by a calibration of a host: all but [cluster.gpu.eager] and [measured] is as in {options.like}.",
        "cluster.gpu.eager": remark(result, options.like),
    }
    description = f"{gpu.name}: the host's eager PyTorch calibrated, all else as in {options.like}"
    options.out.write_text(profile_text(cluster, measured, description, remarks), encoding="utf-8")
    tell(host_view(result, like.host.gpu.eager), options)


def measure_host(like: Cluster, bar: ProgressLine, *, device: str = "cuda", seconds: float = _SECONDS) -> HostFound:
    """Measure the prices of this machine's host, starting the fit from `like`, a profile of GPUs.

    `seconds` limits the timing, besides warm-up.

    Raises:
        RunEnded: the snippets did not finish.
        ProgramError: the snippets could not be counted.
    """
    bar.show("counting what a host does")
    counts = count(_SCRIPT, list(SNIPPETS), like)
    bar.show("timing what a host does")
    with scratch_folder() as folder:
        times_ns = _time(Path(folder, "times.json"), device, seconds)
    timed, held_out = together(counts, times_ns, HELD_OUT)
    if not timed:
        raise RunEnded("none of the pieces of training ran on this machine: see above")
    return HostFound(fit=fit(timed, like.host.gpu.eager), timed=timed, held_out=held_out)


def _time(out: Path, device: str, seconds: float) -> dict[str, list[int]]:
    # Timed in a process of its own, like a user's script: torch and CUDA start afresh there.
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    words = [sys.executable, str(_SCRIPT), "time", device, str(seconds), str(out)]
    env, limit_s = {**os.environ, "PYTHONPATH": path}, seconds + _LIMIT_S
    try:
        subprocess.run(words, check=True, env=env, stdout=subprocess.DEVNULL, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise RunEnded(f"the host's snippets did not end within {limit_s:g} s") from None
    except subprocess.CalledProcessError as error:
        raise RunEnded(f"the host's snippets ended with code {error.returncode}: see above") from None
    result: dict[str, list[int]] = json.loads(out.read_text(encoding="utf-8"))
    return result


def remark(result: HostFound, like: str) -> str:
    """Return the comment on the prices in the written profile."""
    lines = [
        f"Measured: with these prices the counts of {len(result.timed)} pieces of training give what the host took for",
        f"them, {_errors(result.timed, result.fit.eager)}; of steps that were not fitted,",
        f"{_errors(result.held_out, result.fit.eager)}. Launches themselves are `launch`.",
    ]
    lines.append(f"Not measured: cpu_rate, cpu_flops and loop, as in {like} (see python -m benchmarks.cpu_operators).")
    if result.fit.unseen:
        lines.append(f"Not measured: {', '.join(result.fit.unseen)}, as in {like} times {result.fit.factor:.2f}.")
    return "\n".join(lines)


def _errors(timed: Sequence[TimedSnippet], eager: Eager) -> str:
    errors = [each.error(eager) for each in timed]
    if not errors:
        return "none of which ran"
    return f"{mean(map(abs, errors)):.1%} off in the mean, {max(errors, key=abs):+.1%} at most"


def plain(result: HostFound) -> dict[str, Any]:
    """Return prices and snippets for JSON; times in ns."""
    rows = [
        {
            "name": each.name,
            "is_held_out": each in result.held_out,
            "measured_ns": each.median_ns,
            "predicted_ns": each.predicted_ns(result.fit.eager),
            **each.counted.work._asdict(),
            "collectives": each.counted.collectives,
            "launches_ns": each.counted.launches_ns,
        }
        for each in (*result.timed, *result.held_out)
    ]
    return {"eager": dataclasses.asdict(result.fit.eager), "unseen": result.fit.unseen, "snippets": rows}


def host_view(result: HostFound, before: Eager) -> CalibrationView:
    """Return the report's subject: prices, old and measured, and snippets."""
    eager = result.fit.eager
    prices = [
        {
            "name": name + (" (not measured)" if name in result.fit.unseen else ""),
            "before_ns": getattr(before, f"{name}_ns"),
            "measured_ns": getattr(eager, f"{name}_ns"),
        }
        for name in PRICES
    ]
    pieces = [
        {
            "name": each.name + mark,
            "measured_ns": each.median_ns,
            "predicted_ns": each.predicted_ns(eager),
            "error": each.error(eager),
            "error_before": each.error(before),
        }
        for timed, mark in ((result.timed, ""), (result.held_out, " (held out)"))
        for each in timed
    ]
    words = (
        f"fitted: {_errors(result.timed, eager)}; held out: {_errors(result.held_out, eager)}\n"
        f"with the prices before: fitted {_errors(result.timed, before)}; held out {_errors(result.held_out, before)}"
    )
    tables = {"prices": pd.DataFrame(prices), "pieces": pd.DataFrame(pieces)}
    return CalibrationView(data=plain(result), tables=tables, words={"pieces": words})
