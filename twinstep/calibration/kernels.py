"""Command `python -m real calibrate --kernels` for a CPU: a core's kernels, in a profile that is otherwise a ready one.

The probes are `kernels.device`; `kernels.fit` turns the core's times into figures. A GPU's operators are
`calibration.operators`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType

from real.calibration.kernels.device import Reached, cpu_here, reached_rates
from real.calibration.kernels.fit import KernelFit, fit, observe
from real.calibration.kernels.probes import ROUNDS, WARM_UP
from real.calibration.play import play, scenario_on
from real.calibration.profile import FREE_PEAKS, measured_here, profile_text
from real.launch.launcher import Hosts
from real.machine import cores
from reports.terminal import text
from scenarios.config import provenance
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import Recording

# A CPU's kernels take 15 % more or less in another process, or a minute later: hence several launches.
_LAUNCHES = 3
_LINKS = ("cluster.inside", "cluster.nic", "cluster.network", "cluster.tcp")


def check_kernels(options: argparse.Namespace, like: Cluster) -> None:
    """Refuse more ranks than this machine has cores.

    Raises:
        ScenarioError: in one sentence.
    """
    if not 1 <= options.ranks_per_host <= cores():
        raise ScenarioError(f"--ranks-per-host = {options.ranks_per_host}: expected 1 to {cores()}, one for each core")


def calibrate_kernels(options: argparse.Namespace, command: str) -> None:
    """Run the probes, fit, write the profile, and show its errors.

    Raises:
        RunEnded: the probes did not finish.
    """
    began_s = time.monotonic()
    like = load_profile(options.like)
    with ProgressLine(quiet=options.quiet, ticks=True) as bar:
        timed = observe(one.spans for one in _play(like, options.ranks_per_host, bar))
    result, rates = fit(timed, cpu_here(like.host.gpu)), reached_rates(timed)
    cluster = dataclasses.replace(like, host=dataclasses.replace(like.host, gpu=result.gpu))
    measured = measured_here(command, options.ranks_per_host, began_s, result.groups)
    description = f"{result.gpu.name}: kernels calibrated, all else as in {options.like}"
    text = profile_text(cluster, measured, description, _remarks(options.like))
    options.out.write_text(text, encoding="utf-8")
    if options.json:
        groups = [dataclasses.asdict(group) for group in result.groups]
        plain = {"groups": groups, "reached": [dataclasses.asdict(one) for one in rates]}
        print(json.dumps({"profile": str(options.out), **plain}, indent=1))
        return
    if not options.quiet:
        _show(result, rates)
    print(options.out)


def _play(like: Cluster, ranks: int, bar: ProgressLine) -> list[Recording]:
    cluster = dataclasses.replace(like, hosts=1, host=dataclasses.replace(like.host, gpus=ranks))
    scenario = scenario_on(cluster, "kernels", steps=ROUNDS)
    return [
        play(bar, scenario, "real.calibration.kernels.device:DeviceProbes", Hosts(), steps=WARM_UP + ROUNDS)
        for _ in range(_LAUNCHES)
    ]


def _remarks(like: str) -> dict[str, str]:
    """Return comments on the profile's tables that were not measured."""
    return {**FREE_PEAKS, **dict.fromkeys(("cluster", *_LINKS), f"Not measured: as in {like}.")}


def _show(result: KernelFit, rates: Sequence[Reached]) -> None:
    shown = [[one.what, f"{one.per_s / 1e9:,.4g} {'GB/s' if one.what == 'memory' else 'GFLOP/s'}"] for one in rates]
    tables = (
        _errors(result.groups, f"Calibration residuals: kernels of {result.gpu.name}"),
        text.table("What is reached", ["of", "best kernel"], shown),
    )
    text.show(Group(*tables), sys.stdout)


def _errors(groups: Iterable[provenance.ErrorGroup], title: str) -> RenderableType:
    columns = ["kernels", "bytes", "median error", "typical", "worst", "spread of repeats"]
    rows = [
        [
            group.name.removesuffix(" kernels"),
            f"{group.least_bytes:,} to {group.most_bytes:,}",
            f"{group.median_error:+.1%}",
            f"{group.typical_error:.1%}",
            f"{group.worst_error:+.1%}",
            "" if group.spread is None else f"{group.spread:.1%}",
        ]
        for group in groups
    ]
    return text.table(title, columns, rows)
