"""Command `python -m real calibrate --kernels` for a CPU: a core's kernels, in a profile that is otherwise a ready one.

The probes are `kernels.device`; `kernels.fit` turns the core's times into figures. A GPU's operators are
`calibration.operators`.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Sequence

import pandas as pd

from real.calibration.kernels.fit import KernelFit, Reached, fit, observe, reached_rates
from real.calibration.kernels.probes import ROUNDS, WARM_UP, cpu_here
from real.calibration.play import play, scenario_on
from real.calibration.profile import FREE_PEAKS, describe_measurement, profile_text
from real.launch.launcher import Hosts
from real.machine import cores
from reports.sections.calibration import CalibrationView
from reports.terminal import text
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import Recording
from twinstep.calibration.telling import tell

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
    measured = describe_measurement(command, options.ranks_per_host, began_s, result.groups)
    description = f"{result.gpu.name}: kernels calibrated, all else as in {options.like}"
    options.out.write_text(profile_text(cluster, measured, description, _remarks(options.like)), encoding="utf-8")
    tell(_view(result, rates), options)


def _play(like: Cluster, ranks: int, bar: ProgressLine) -> list[Recording]:
    cluster = dataclasses.replace(like, hosts=1, host=dataclasses.replace(like.host, gpus=ranks))
    scenario = scenario_on(cluster, "kernels", steps=ROUNDS)
    return [
        play(bar, scenario, "real.calibration.kernels.probes:DeviceProbes", Hosts(), steps=WARM_UP + ROUNDS)
        for _ in range(_LAUNCHES)
    ]


def _remarks(like: str) -> dict[str, str]:
    """Return comments on the profile's tables that were not measured."""
    return {**FREE_PEAKS, **dict.fromkeys(("cluster", *_LINKS), f"Not measured: as in {like}.")}


def _view(result: KernelFit, rates: Sequence[Reached]) -> CalibrationView:
    groups, reached = (pd.DataFrame(list(map(dataclasses.asdict, rows))) for rows in (result.groups, rates))
    shown = groups.assign(
        name=groups["name"].str.removesuffix(" kernels"),
        sizes=[f"{group.least_bytes:,} to {group.most_bytes:,}" for group in result.groups],
        typical_mean=groups["typical_error"],
        spread=groups["spread"].astype(float),
    )
    rate = [(text.rate if one.what == "memory" else text.flop_rate)(one.per_s) for one in rates]
    return CalibrationView(
        data={"groups": groups, "reached": reached},
        tables={"groups": shown, "reached": reached.assign(rate=rate)},
        of={"groups": f"kernels of {result.gpu.name}"},
    )
