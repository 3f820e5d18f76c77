"""`python -m real calibrate --kernels`: the kernels of the device at hand, in a profile that is else as a ready one.

What is played is `kernels.device`; how the device's times become figures `kernels.fit`; a GPU's host is
`calibration.host`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from rich.console import Group, RenderableType

from real.calibration.host import cli as eager_host
from real.calibration.kernels.device import Reached, between_events_ns, cpu_here, gpu_here, reached
from real.calibration.kernels.fit import KernelFit, fit, fit_to_peaks, observe
from real.calibration.kernels.probes import ROUNDS, WARM_UP
from real.calibration.play import play, scenario_on
from real.calibration.profile import FREE_PEAKS, measured_here, profile_text
from real.emulate.cli import say
from real.launch.launcher import Hosts
from real.machine import cores
from real.progress import Bar
from reports.terminal import text
from scenarios.config import provenance
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import Recording

# A CPU's kernels take 15 % more or less in another process, or a minute later.
_LAUNCHES = {"cpu": 3, "cuda": 1}
# Past a data sheet's peak by more than clocks and rounding explain: it is another device's.
_PAST_PEAK = 1.05
_LINKS = ("cluster.inside", "cluster.nic", "cluster.network", "cluster.tcp")


def check_kernels(options: argparse.Namespace) -> None:
    """Refuse what cannot be measured with --kernels or --host.

    Raises:
        ScenarioError: in one sentence.
    """
    flag = "--host" if options.host else "--kernels"
    for name, value in (("nic", options.nic), ("hosts", options.hosts)):
        if value is not None:
            raise ScenarioError(f"--{name} = {value}: expected without {flag}, which measures no network")
    if options.like is None:
        raise ScenarioError(f"--like: missing; expected a profile such as 'dgx_h100' with {flag}")
    kind, ranks = load_profile(options.like).host.gpu.kind, options.ranks_per_host
    if options.host and kind == "cpu":
        raise ScenarioError(
            f"--like = '{options.like}': expected a profile of GPUs with --host; beside a CPU, what its host does is in"
            " the kernels' times"
        )
    if options.host and ranks != 1:
        raise ScenarioError(f"--ranks-per-host = {ranks}: expected 1 with --host, which measures one process")
    most = torch.cuda.device_count() if kind == "cuda" else cores()
    if kind == "cuda" and not most:
        raise ScenarioError(
            f"--like = '{options.like}': expected a profile of CPUs, as this machine has no CUDA devices"
            if options.kernels
            else f"--like = '{options.like}': expected a machine with a CUDA device for --host"
        )
    if not 1 <= ranks <= most:
        each = "CUDA device" if kind == "cuda" else "core"
        raise ScenarioError(f"--ranks-per-host = {ranks}: expected 1 to {most}, one for each {each}")


def calibrate_kernels(options: argparse.Namespace, command: str) -> None:
    """Play the probes, fit, measure a GPU's host, write the profile, and show how good it is.

    Raises:
        RunEnded: the probes came to no end.
        ProgramError: what a GPU's host does could not be counted.
    """
    began_s = time.monotonic()
    like = load_profile(options.like)
    with Bar(quiet=options.quiet) as bar:
        found = _fit(_play(like, options.ranks_per_host, bar), like)
        if like.host.gpu.kind == "cuda":
            found = dataclasses.replace(found, host=eager_host.measure_host(like, bar))
    cluster = dataclasses.replace(like, host=dataclasses.replace(like.host, gpu=found.gpu))
    measured = measured_here(command, options.ranks_per_host, began_s, found.groups)
    what = "kernels" if found.host is None else "kernels and the host's eager PyTorch"
    description = f"{found.gpu.name}: {what} calibrated, all else as in {options.like}"
    text = profile_text(cluster, measured, description, _remarks(options.like, found))
    options.out.write_text(text, encoding="utf-8")
    _warn(found, options.like)
    if options.json:
        print(json.dumps({"profile": str(options.out), **_plain(found)}, indent=1))
        return
    if not options.quiet:
        _show(found, like)
    print(options.out)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """`between_events_ns` is what a GPU's spans have beside the kernel, `host` what is measured of its host."""

    fit: KernelFit
    reached: list[Reached]
    between_events_ns: int | None = None
    host: eager_host.HostFound | None = None

    @property
    def gpu(self) -> Gpu:
        """The GPU or core with all that was measured."""
        return self.fit.gpu if self.host is None else dataclasses.replace(self.fit.gpu, eager=self.host.fit.eager)

    @property
    def groups(self) -> tuple[provenance.Group, ...]:
        """How far all that was fitted is off, for a profile's [measured]."""
        return self.fit.groups if self.host is None else (*self.fit.groups, *self.host.groups)


def _play(like: Cluster, ranks: int, bar: Bar) -> list[Recording]:
    host = dataclasses.replace(like.host, gpus=ranks)
    kind = host.gpu.kind
    cluster = dataclasses.replace(like, hosts=1, host=host)
    scenario = scenario_on(cluster, "kernels", steps=ROUNDS)
    return [
        play(bar, scenario, "real.calibration.kernels.device:DeviceProbes", Hosts(), steps=WARM_UP + ROUNDS)
        for _ in range(_LAUNCHES[kind])
    ]


def _fit(recordings: Sequence[Recording], like: Cluster) -> _Found:
    gpu = like.host.gpu
    timed = observe(one.spans for one in recordings)
    if gpu.kind == "cpu":
        return _Found(fit=fit(timed, cpu_here(gpu)), reached=reached(timed, gpu))
    return _Found(
        fit=fit_to_peaks(timed, gpu_here(gpu)),
        reached=reached(timed, gpu),
        between_events_ns=between_events_ns(chain.from_iterable(one.spans for one in recordings)),
    )


def _remarks(like: str, found: _Found) -> dict[str, str]:
    """Return comments on the profile's tables: what was not measured, what the peaks are, how good prices are."""
    unmeasured = dict.fromkeys(_LINKS, f"Not measured: as in {like}.")
    if found.host is None:
        return {**FREE_PEAKS, "cluster": f"Not measured: as in {like}.", **unmeasured}
    rates = (f"  {one.what}: {_rate(one)}, {one.share:.0%} of the peak" for one in found.reached)
    gpu = [
        f"Measured, but for `launch` and the memory's rate (its peak), as in {like}. What the best kernels reach:",
        *rates,
        f"Two CUDA events with nothing between them are {found.between_events_ns} ns apart: ramps have that in them.",
    ]
    return {
        "": "Written by a calibration of kernels and their host: see [measured] for where, when and how good.",
        "cluster": f"Not measured: as in {like}.",
        "cluster.gpu": "\n".join(gpu),
        "cluster.gpu.flops": f"Not measured: the peaks as in {like}.",
        "cluster.gpu.launches": f"Not measured: as in {like}.",
        "cluster.gpu.eager": eager_host.remark(found.host, like),
        **unmeasured,
    }


def _warn(found: _Found, like: str) -> None:
    """A data sheet that is another device's is seen where kernels are better than it."""
    say(
        f"{one.what}: kernels reach {_rate(one)}, {one.share:.0%} of the peak of --like = '{like}':"
        " expected the profile of this device"
        for one in found.reached
        if one.share is not None and one.share > _PAST_PEAK
    )


def _rate(one: Reached) -> str:
    return f"{one.per_s / 1e9:,.4g} {'GB/s' if one.what == 'memory' else 'GFLOP/s'}"


def _plain(found: _Found) -> dict[str, Any]:
    return {
        "groups": [dataclasses.asdict(group) for group in found.fit.groups],
        "reached": [dataclasses.asdict(one) for one in found.reached],
        "between_events_ns": found.between_events_ns,
        "host": None if found.host is None else eager_host.plain(found.host),
    }


def _show(found: _Found, like: Cluster) -> None:
    rates = [[one.what, _rate(one), "" if one.share is None else f"{one.share:.1%}"] for one in found.reached]
    tables = [
        _errors(found.fit.groups, f"Calibration residuals: kernels of {found.gpu.name}"),
        text.table("What is reached", ["of", "best kernel", "share of the peak"], rates),
    ]
    if found.host is not None:
        tables.append(eager_host.shown(found.host, like.host.gpu.eager))
    text.show(Group(*tables), sys.stdout)


def _errors(groups: Iterable[provenance.Group], title: str) -> RenderableType:
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
