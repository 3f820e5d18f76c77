"""`python -m real calibrate --kernels` of a GPU: measures its operators; writes their table, and a profile with it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import torch
from rich.console import Group, RenderableType

from real.calibration.operators.draws import CPU_SCALE, GPU_SCALE
from real.calibration.operators.judging import Judged, family_of, judge, reasons
from real.calibration.operators.making import fbgemm
from real.calibration.operators.making.arena import Arena
from real.calibration.operators.measuring import measure
from real.calibration.operators.of_run import by_share, refuse_world, scenario_of
from real.calibration.operators.part import SUFFIX, Measured, Part, Refused, keeping
from real.calibration.operators.ranges import families, planned
from real.calibration.operators.timers import CpuTimer, CudaTimer, Timer
from real.calibration.profile import measured_here, profile_text
from real.machine import device_name
from reports.errors import ReportError
from reports.store.run_folder import operators_in
from reports.terminal import text
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.config.toml.hardware.sections import GpuSection
from scenarios.kernel_tables.file import Origin, write_table
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError
from scenarios.seam.operations.operation import Operation
from scenarios.versions import versions
from scenarios.workloads.build import build_simulation
from sim.engine.prices import Prices
from sim.operators.laws import seconds as law_seconds
from sim.operators.tables.nearest import Nearest
from sim.operators.tables.read import table_of
from sim.operators.tables.table import Table, correction
from sim.run import play
from twinstep.calibration import host as eager_host

SECONDS = 60.0
# Operators of ranges that take longer are left out; those of a run are not.
_LONGEST_S = 5e-3
# Of a GPU's memory: pools of each dtype, results, and embedding tables that an operator may take. A CPU's are fixed.
_POOL, _RESULTS, _TABLES = 0.035, 0.1, 0.25
_CPU_POOL, _CPU_RESULTS = 1 << 26, 1 << 28
_LINKS = ("cluster.inside", "cluster.nic", "cluster.network", "cluster.tcp")


def check_operators(options: argparse.Namespace, like: Cluster) -> None:
    """Refuse what cannot be measured, and fill in what was left open.

    Raises:
        ScenarioError: in one sentence.
    """
    if not like.host.gpu.has_laws:
        raise ScenarioError(
            f"--like = '{options.like}': expected a profile whose GPU has laws of operators: priced_by = 'laws', with"
            " multiprocessors"
        )
    options.seconds = SECONDS if options.seconds is None else options.seconds
    if not options.seconds > 0:
        raise ScenarioError(f"--seconds = {options.seconds}: expected more than 0")
    table = table_file(options.out)
    if table.exists() and not _part_file(table).exists():  # else a command ended before it wrote the profile
        raise ScenarioError(f"{table} already exists: choose another --out")
    if options.of is None:
        for name, value in (("hosts", options.hosts), ("ranks-per-host", options.ranks_per_host)):
            if value is not None:
                raise ScenarioError(f"--{name} = {value}: expected with --of a script, as one GPU is measured")
    if options.device == "cuda" and not torch.cuda.device_count():
        raise ScenarioError(
            f"--like = '{options.like}': expected a machine with a CUDA device, a profile of CPUs, or --device cpu to"
            " rehearse"
        )


def table_file(out: Path) -> Path:
    """Return the file of the table beside a profile."""
    return out.with_suffix(".parquet")


def calibrate_operators(options: argparse.Namespace, command: str) -> None:
    """Measure a device's operators and its host, judge the table, write table and profile, and show how good they are.

    Raises:
        ScenarioError: what `--of` names is none, or what an earlier command left is of another measurement.
        RunEnded: the host's pieces came to no end.
        ProgramError: the run that `--of` names could not be simulated, or the host's work not be counted.
    """
    began_s, like = time.monotonic(), load_profile(options.like)
    table = table_file(options.out)
    with ProgressLine(quiet=options.quiet, ticks=True) as bar:
        found = _measured(options, like, bar)
        fbgemm.forget()
        if options.device == "cuda":
            torch.cuda.empty_cache()  # for the process that measures the host
            found = dataclasses.replace(found, host=eager_host.measure_host(like, bar))
    rows = [one.row(is_cold=found.is_cold) for one in found.kept]
    if not rows:
        raise ScenarioError(f"--seconds = {options.seconds:g}: no operator was measured; expected more")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    write_table(table, rows, Origin(machine=found.machine, date=date, source=command))
    cluster = dataclasses.replace(like, host=dataclasses.replace(like.host, gpu=_gpu(found, like.host.gpu, table)))
    groups = [group for each in found.judged for group in each.groups()]
    measured = measured_here(command, 1, began_s, [*groups, *(() if found.host is None else found.host.groups)])
    description = f"{cluster.host.gpu.name}: {len(rows):,} operators measured{_where(found)}, else as in {options.like}"
    options.out.write_text(
        profile_text(cluster, measured, description, _remarks(options, found, table)), encoding="utf-8"
    )
    _part_file(table).unlink()
    if options.json:
        print(json.dumps({"profile": str(options.out), "table": str(table), **_plain(found)}, indent=1))
        return
    if not options.quiet:
        text.show(_shown(found, like), sys.stdout)
    print(options.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What was measured on `machine`, a GPU or a CPU: operators, how good their table is, and a GPU's host.

    `late` counts the operators by family for which there was no time, as far as they are known; `of_run` is the share
    of a run's predicted time that was measured; `held_us` is what two events hold.
    """

    machine: str
    is_cold: bool
    measured: list[Measured]
    refused: list[Refused]
    judged: list[Judged]
    is_of_run: bool
    late: Mapping[str, int]
    of_run: float | None = None
    held_us: tuple[float, float] | None = None
    host: eager_host.HostFound | None = None

    @property
    def worse(self) -> list[str]:
        """Families that a table makes worse."""
        return [each.family for each in self.judged if each.is_worse]

    @property
    def kept(self) -> list[Measured]:
        """Operators of the table: of a run all, as each is one that will be asked for; else of families that gain."""
        worse = () if self.is_of_run else self.worse
        return [one for one in self.measured if family_of(one.operation) not in worse]


def _measured(options: argparse.Namespace, like: Cluster, bar: ProgressLine) -> _Found:
    """Measure within the time, going on where an earlier command stood; judge what there is."""
    gpu, device = like.host.gpu, torch.device(options.device)
    machine = device_name(torch.device("cpu") if options.device == "cpu" else torch.device("cuda", 0))
    prices = Prices(gpu)
    given = None if options.of is None else _of_run(options, prices, bar)
    plan = (one for one, _ in given) if given is not None else _planned(gpu, options.device, prices)
    of = {"device": machine, "torch": versions()["torch"], "of": "" if options.of is None else str(options.of)}
    with keeping(_part_file(table_file(options.out)), of) as part:
        bar.show("preparing the device")
        timer, arena = timer_of(device, prices.seconds), arena_of(device)
        try:
            with torch.no_grad():
                is_whole = measure(
                    plan,
                    timer,
                    arena,
                    part,
                    seconds=options.seconds,
                    look=lambda done: bar.show(f"measuring operators: {done:,}"),
                )
        except KeyboardInterrupt:
            kept = f"{len(part.measured):,} operators are in it; the same command goes on"
            raise KeyboardInterrupt(f"{_part_file(table_file(options.out))}: {kept}") from None
        bar.show("judging the table")
        return _Found(
            machine=machine,
            is_cold=timer.is_cold,
            measured=part.measured,
            refused=part.refused,
            judged=judge(part.measured, _predictor(gpu, is_cold=timer.is_cold), is_cold=timer.is_cold),
            is_of_run=given is not None,
            late={} if is_whole else _late(given, part, gpu, options.device, prices),
            of_run=None if given is None else _share(given, part, prices),
            held_us=(timer.nothing_us, timer.held_us) if isinstance(timer, CudaTimer) else None,
        )


def _part_file(table: Path) -> Path:
    return table.with_name(table.name + SUFFIX)


def timer_of(device: torch.device, expected_s: Callable[[Operation], float]) -> Timer:
    """Return the clock of a device; `expected_s` says how long an operator may take."""
    return CudaTimer(device, expected_s) if device.type == "cuda" else CpuTimer()


def arena_of(device: torch.device) -> Arena:
    """Return as much of a device's memory as is set aside for operators' tensors."""
    if device.type != "cuda":
        return Arena(device, _CPU_POOL, _CPU_RESULTS, _CPU_RESULTS)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return Arena(device, *(int(share * free_bytes) for share in (_POOL, _RESULTS, _TABLES)))


def _planned(gpu: Gpu, device: str, prices: Prices) -> Iterator[Operation]:
    """Yield operators of all families in turn; those that take long are left out."""
    scale = CPU_SCALE if device == "cpu" else GPU_SCALE
    every = planned(families(gpu, has_fbgemm=fbgemm.is_installed()), scale)
    return (one for _, one in every if prices.seconds(one) <= _LONGEST_S)


def _of_run(options: argparse.Namespace, prices: Prices, bar: ProgressLine) -> list[tuple[Operation, int]]:
    given: Path = options.of
    if given.is_dir():
        refuse_world(given, options.hosts, options.ranks_per_host)
        try:
            return by_share(given, operators_in(given), prices.seconds)
        except ReportError as error:
            raise ScenarioError(f"--of: {error}") from None
    bar.show(f"simulating {given}")
    scenario = scenario_of(given, options.of_args, options.like, options.hosts, options.ranks_per_host)
    return by_share(given, play(scenario, build_simulation(scenario), lambda _: None).operators, prices.seconds)


def _predictor(gpu: Gpu, *, is_cold: bool) -> Callable[[Sequence[MeasuredOperator], Sequence[Operation]], list[float]]:
    """Return what predicts operators as the simulator does, with a table of rows over the profile's own."""
    own = [table_of(name, gpu) for name in gpu.kernel_tables]

    def predict(rows: Sequence[MeasuredOperator], asked: Sequence[Operation]) -> list[float]:
        tables = [*own, Table(surfaces={}, nearest=Nearest(rows, gpu))] if rows else own
        return [law_seconds(each, gpu, is_cold=is_cold) * correction(tables, each).factor for each in asked]

    return predict


def _late(
    given: Sequence[tuple[Operation, int]] | None, part: Part, gpu: Gpu, device: str, prices: Prices
) -> Counter[str]:
    """Count by family the operators that there was no time for: those of the run, else of each family's first ones."""
    known = part.known()
    if given is not None:
        return Counter(family_of(one) for one, _ in given if one not in known)
    seen = {family_of(one) for one in known}
    first = islice(_planned(gpu, device, prices), _FIRST)
    return Counter(family for one in first if (family := family_of(one)) not in seen)


# Operators of the plan among which is each family.
_FIRST = 1000


def _share(given: Sequence[tuple[Operation, int]], part: Part, prices: Prices) -> float:
    """Return the share of a run's predicted time whose operators were measured."""
    measured = {one.operation for one in part.measured}
    times = {one: count * prices.seconds(one) for one, count in given}
    return sum(time_s for one, time_s in times.items() if one in measured) / max(sum(times.values()), 1e-12)


def _gpu(found: _Found, like: Gpu, table: Path) -> Gpu:
    """Return the profile's GPU: the driver's figures, the table over those it had, and its host's prices."""
    gpu = like if found.host is None else gpu_here(like)
    eager = like.eager if found.host is None else found.host.fit.eager
    return dataclasses.replace(gpu, kernel_tables=(*like.kernel_tables, table.name), eager=eager)


def gpu_here(like: Gpu) -> Gpu:
    """Return `like` with what the driver says of CUDA device 0.

    A compute capability that no profile can have (NCCL's choices for it are not known) stays that of `like`.
    """
    found = torch.cuda.get_device_properties(0)
    known = get_args(get_args(GpuSection.model_fields["compute_capability"].annotation)[0])
    is_known = f"{found.major}.{found.minor}" in known
    return dataclasses.replace(
        like,
        name=found.name,
        memory_bytes=found.total_memory,
        multiprocessors=found.multi_processor_count,
        compute_capability=10 * found.major + found.minor if is_known else like.compute_capability,
    )


def _where(found: _Found) -> str:
    return "" if found.host is not None else f" on a CPU ({found.machine}), as a rehearsal"


def _remarks(options: argparse.Namespace, found: _Found, table: Path) -> dict[str, str]:
    """Return comments on the profile's tables: what was measured, and what was not and why."""
    as_in = f"as in {options.like}"
    gpu = [f"Measured: the operators in {table.name}. Not measured: peaks, efficiency, launches and ramps, {as_in}."]
    if found.host is None:
        gpu.append(f"A rehearsal: the table's times are those of a CPU ({found.machine}), not of a GPU.")
    gpu += _said(found)
    return {
        "": "Written by a calibration of operators: see [measured] for where, when and how good.",
        "cluster": f"Not measured: {as_in}.",
        "cluster.gpu": "\n".join(gpu),
        "cluster.gpu.flops": f"Not measured: {as_in}.",
        "cluster.gpu.launches": f"Not measured: {as_in}.",
        "cluster.gpu.eager": (
            f"Not measured: {as_in}." if found.host is None else eager_host.remark(found.host, options.like)
        ),
        **dict.fromkeys(_LINKS, f"Not measured: {as_in}."),
    }


def _said(found: _Found) -> list[str]:
    """Return sentences on what was not measured, and on what the table does not hold."""
    lines = []
    if found.of_run is not None:
        lines.append(f"The operators measured take {found.of_run:.1%} of the run's predicted time on the GPU.")
    for family, whys in sorted(reasons(found.refused).items()):
        lines += [f"Not measured: {count} of {family} ({why})." for why, count in whys.items()]
    if found.late:
        counts = (f"{count} of {family}" if found.is_of_run else family for family, count in sorted(found.late.items()))
        lines.append(f"Not measured, as there was no time: {', '.join(counts)}.")
    if not found.is_of_run and not fbgemm.is_installed():
        lines.append("Not measured: operators of fbgemm (fbgemm_gpu is not installed).")
    if found.worse:
        what = "exact matches alone count" if found.is_of_run else "left out of the table"
        lines.append(f"Not better than before on operators that were held out, {what}: {', '.join(found.worse)}.")
    return lines


def _plain(found: _Found) -> dict[str, Any]:
    return {
        "device": found.machine,
        "measured": len(found.measured),
        "in_table": len(found.kept),
        "families": [
            {
                "family": each.family,
                "measured": each.measured,
                "held_out": len(each.errors),
                "error_before": each.typical_before,
                "error": each.typical,
                "is_left_out": each.is_worse and not found.is_of_run,
            }
            for each in found.judged
        ],
        "not_measured": {family: dict(whys) for family, whys in reasons(found.refused).items()},
        "no_time": dict(found.late),
        "share_of_run": found.of_run,
        "between_events_us": found.held_us,
        "host": None if found.host is None else eager_host.plain(found.host),
    }


def _shown(found: _Found, like: Cluster) -> RenderableType:
    rows = [
        [
            each.family,
            f"{each.measured:,}",
            _percent(each.typical_before),
            _percent(each.typical),
            "not better" if each.is_worse else "",
        ]
        for each in sorted(found.judged, key=lambda each: each.family)
    ]
    columns = ["operators", "measured", "off before", "off with the table", ""]
    title = f"{len(found.measured):,} operators of {found.machine}; every fifth is held out to judge the table"
    parts: list[RenderableType] = [text.table(title, columns, rows)]
    if lines := _said(found):
        parts.append(text.paragraph("\n".join(lines)))
    if found.host is not None:
        parts.append(eager_host.shown(found.host, like.host.gpu.eager))
    return Group(*parts)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
