"""Command `python -m real calibrate --kernels` for a GPU: measures operators; writes their table, and a profile with
it.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import torch

from real.calibration.operators.draws import CPU_SCALE, GPU_SCALE
from real.calibration.operators.judging import Judged, family_of, judge, reasons
from real.calibration.operators.making import fbgemm
from real.calibration.operators.making.arena import Arena
from real.calibration.operators.measuring import by_share, measure, refuse_world, scenario_of
from real.calibration.operators.part import SUFFIX, MeasuredRepeats, PartialMeasurement, UnmeasuredOperator, keeping
from real.calibration.operators.ranges import families, plan_operators
from real.calibration.operators.timers import CpuTimer, CudaTimer, Timer
from real.calibration.profile import describe_measurement, profile_text
from real.machine import device_name
from reports.errors import ReportError
from reports.sections.calibration import CalibrationView
from reports.store.run_folder import operators_in
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
from sim.operators.tables.table import OperatorTable, correction
from sim.run import play
from twinstep.calibration import host as eager_host
from twinstep.calibration.telling import tell

SECONDS = 60.0
# Drawn operators that take longer are left out; a run's operators are not.
_LONGEST_S = 5e-3
# Shares of a GPU's memory: pools of each dtype, results, and embedding tables of an operator. A CPU's are fixed.
_POOL, _RESULTS, _TABLES = 0.035, 0.1, 0.25
_CPU_POOL, _CPU_RESULTS = 1 << 26, 1 << 28
_LINKS = ("cluster.inside", "cluster.nic", "cluster.network", "cluster.tcp")


def check_operators(options: argparse.Namespace, like: Cluster) -> None:
    """Refuse options that cannot be measured, and fill in defaults.

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
    if table.exists() and not _part_file(table).exists():  # with a part file, a command ended before the profile
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
    """Return the path of a profile's table."""
    return out.with_suffix(".parquet")


def calibrate_operators(options: argparse.Namespace, command: str) -> None:
    """Measure a device's operators and its host, judge the table, write table and profile, and show their errors.

    Raises:
        ScenarioError: `--of` names no run, or an earlier command's part file belongs to another measurement.
        RunEnded: the host's snippets did not finish.
        ProgramError: the run that `--of` names could not be simulated, or the host's work not be counted.
    """
    began_s, like = time.monotonic(), load_profile(options.like)
    table = table_file(options.out)
    with ProgressLine(quiet=options.quiet, ticks=True) as bar:
        result = _measure(options, like, bar)
        fbgemm.forget()
        if options.device == "cuda":
            torch.cuda.empty_cache()  # leaves memory to the process that measures the host
            result = dataclasses.replace(result, host=eager_host.measure_host(like, bar))
    rows = [one.row(is_cold=result.is_cold) for one in result.kept_operators]
    if not rows:
        raise ScenarioError(f"--seconds = {options.seconds:g}: no operator was measured; expected more")
    date = datetime.now(UTC).isoformat(timespec="seconds")
    write_table(table, rows, Origin(machine=result.machine, date=date, source=command))
    cluster = dataclasses.replace(like, host=dataclasses.replace(like.host, gpu=_gpu(result, like.host.gpu, table)))
    groups = [group for each in result.judged for group in each.groups()]
    measured = describe_measurement(
        command, 1, began_s, [*groups, *(() if result.host is None else result.host.groups)]
    )
    description = (
        f"{cluster.host.gpu.name}: {len(rows):,} operators measured{_where(result)}, else as in {options.like}"
    )
    options.out.write_text(
        profile_text(cluster, measured, description, _remarks(options, result, table)), encoding="utf-8"
    )
    _part_file(table).unlink()
    tell(_view(result, like, table), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The measurements on `machine`, a GPU or a CPU: operators, the errors of their table, and a GPU's host.

    Attributes:
        late: count by family of known operators that there was no time for.
        of_run: measured share of a run's predicted time.
        held_us: overhead of two events, in us.
    """

    machine: str
    is_cold: bool
    measured: list[MeasuredRepeats]
    refused: list[UnmeasuredOperator]
    judged: list[Judged]
    is_of_run: bool
    late: Mapping[str, int]
    of_run: float | None = None
    held_us: tuple[float, float] | None = None
    host: eager_host.HostFound | None = None

    @property
    def worse(self) -> list[str]:
        """The families that a table makes worse."""
        return [each.family for each in self.judged if each.is_worse]

    @property
    def kept_operators(self) -> list[MeasuredRepeats]:
        """The operators of the table: all of a run, as it will need each exactly; else those of families that gain."""
        worse = () if self.is_of_run else self.worse
        return [one for one in self.measured if family_of(one.operation) not in worse]


def _measure(options: argparse.Namespace, like: Cluster, bar: ProgressLine) -> _Found:
    """Measure within the time, continuing an earlier command's measurement, and judge the table."""
    gpu, device = like.host.gpu, torch.device(options.device)
    machine = device_name(torch.device("cpu") if options.device == "cpu" else torch.device("cuda", 0))
    prices = Prices(gpu)
    run_operators = None if options.of is None else _of_run(options, prices, bar)
    plan = (
        (one for one, _ in run_operators)
        if run_operators is not None
        else _plan_operations(gpu, options.device, prices)
    )
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
        # The part file has all operators so far; the sentence says how to go on.
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
            is_of_run=run_operators is not None,
            late={} if is_whole else _late(run_operators, part, gpu, options.device, prices),
            of_run=None if run_operators is None else _share(run_operators, part, prices),
            held_us=(timer.nothing_us, timer.held_us) if isinstance(timer, CudaTimer) else None,
        )


def _part_file(table: Path) -> Path:
    return table.with_name(table.name + SUFFIX)


def timer_of(device: torch.device, expected_s: Callable[[Operation], float]) -> Timer:
    """Return the clock of a device; `expected_s` returns an operator's expected time in s."""
    return CudaTimer(device, expected_s) if device.type == "cuda" else CpuTimer()


def arena_of(device: torch.device) -> Arena:
    """Return an arena of the memory reserved for operators' tensors."""
    if device.type != "cuda":
        return Arena(device, _CPU_POOL, _CPU_RESULTS, _CPU_RESULTS)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return Arena(device, *(int(share * free_bytes) for share in (_POOL, _RESULTS, _TABLES)))


def _plan_operations(gpu: Gpu, device: str, prices: Prices) -> Iterator[Operation]:
    """Yield operators of all families in turn, without slow ones."""
    scale = CPU_SCALE if device == "cpu" else GPU_SCALE
    every = plan_operators(families(gpu, has_fbgemm=fbgemm.is_installed()), scale)
    return (one for _, one in every if prices.seconds(one) <= _LONGEST_S)


def _of_run(options: argparse.Namespace, prices: Prices, bar: ProgressLine) -> list[tuple[Operation, int]]:
    run_operators: Path = options.of
    if run_operators.is_dir():
        refuse_world(run_operators, options.hosts, options.ranks_per_host)
        try:
            return by_share(run_operators, operators_in(run_operators), prices.seconds)
        except ReportError as error:
            raise ScenarioError(f"--of: {error}") from None
    bar.show(f"simulating {run_operators}")
    scenario = scenario_of(run_operators, options.of_args, options.like, options.hosts, options.ranks_per_host)
    return by_share(run_operators, play(scenario, build_simulation(scenario), lambda _: None).operators, prices.seconds)


def _predictor(gpu: Gpu, *, is_cold: bool) -> Callable[[Sequence[MeasuredOperator], Sequence[Operation]], list[float]]:
    """Return a function that predicts operators as the simulator does, with a table of its rows over the profile's."""
    own = [table_of(name, gpu) for name in gpu.kernel_tables]

    def predict(rows: Sequence[MeasuredOperator], operations: Sequence[Operation]) -> list[float]:
        tables = [*own, OperatorTable(surfaces={}, nearest=Nearest(rows, gpu))] if rows else own
        return [law_seconds(each, gpu, is_cold=is_cold) * correction(tables, each).factor for each in operations]

    return predict


def _late(
    run_operators: Sequence[tuple[Operation, int]] | None,
    part: PartialMeasurement,
    gpu: Gpu,
    device: str,
    prices: Prices,
) -> Counter[str]:
    """Count by family what was not measured for lack of time: the run's operators; else families without any."""
    known = part.known_operations()
    if run_operators is not None:
        return Counter(family_of(one) for one, _ in run_operators if one not in known)
    seen = {family_of(one) for one in known}
    first = islice(_plan_operations(gpu, device, prices), _FIRST)
    return Counter(family for one in first if (family := family_of(one)) not in seen)


# Among this many operators of the plan is each family.
_FIRST = 1000


def _share(run_operators: Sequence[tuple[Operation, int]], part: PartialMeasurement, prices: Prices) -> float:
    """Return the measured share of a run's predicted time."""
    measured = {one.operation for one in part.measured}
    times = {one: count * prices.seconds(one) for one, count in run_operators}
    return sum(time_s for one, time_s in times.items() if one in measured) / max(sum(times.values()), 1e-12)


def _gpu(result: _Found, like: Gpu, table: Path) -> Gpu:
    """Return the profile's GPU with the driver's figures, the new table after its own, and its host's prices."""
    gpu = like if result.host is None else gpu_here(like)
    eager = like.eager if result.host is None else result.host.fit.eager
    return dataclasses.replace(gpu, kernel_tables=(*like.kernel_tables, table.name), eager=eager)


def gpu_here(like: Gpu) -> Gpu:
    """Return `like` with the driver's figures of CUDA device 0.

    `like` keeps its compute capability where a profile cannot have the device's (NCCL's choices for it are unknown).
    """
    result = torch.cuda.get_device_properties(0)
    known = get_args(get_args(GpuSection.model_fields["compute_capability"].annotation)[0])
    is_known = f"{result.major}.{result.minor}" in known
    return dataclasses.replace(
        like,
        name=result.name,
        memory_bytes=result.total_memory,
        multiprocessors=result.multi_processor_count,
        compute_capability=10 * result.major + result.minor if is_known else like.compute_capability,
    )


def _where(result: _Found) -> str:
    return "" if result.host is not None else f" on a CPU ({result.machine}), as a rehearsal"


def _remarks(options: argparse.Namespace, result: _Found, table: Path) -> dict[str, str]:
    """Return comments on the profile's tables: what was measured, and what was not and why."""
    as_in = f"as in {options.like}"
    gpu = [f"Measured: the operators in {table.name}. Not measured: peaks, efficiency, launches and ramps, {as_in}."]
    if result.host is None:
        gpu.append(f"A rehearsal: the table's times are those of a CPU ({result.machine}), not of a GPU.")
    gpu += _sentences(result)
    return {
        "": "Written by a calibration of operators: see [measured] for where, when and how good.",
        "cluster": f"Not measured: {as_in}.",
        "cluster.gpu": "\n".join(gpu),
        "cluster.gpu.flops": f"Not measured: {as_in}.",
        "cluster.gpu.launches": f"Not measured: {as_in}.",
        "cluster.gpu.eager": (
            f"Not measured: {as_in}." if result.host is None else eager_host.remark(result.host, options.like)
        ),
        **dict.fromkeys(_LINKS, f"Not measured: {as_in}."),
    }


def _sentences(result: _Found) -> list[str]:
    """Return sentences on operators that were not measured or are not in the table."""
    lines = []
    if result.of_run is not None:
        lines.append(f"The operators measured take {result.of_run:.1%} of the run's predicted time on the GPU.")
    for family, whys in sorted(reasons(result.refused).items()):
        lines += [f"Not measured: {count} of {family} ({why})." for why, count in whys.items()]
    if result.late:
        counts = (
            f"{count} of {family}" if result.is_of_run else family for family, count in sorted(result.late.items())
        )
        lines.append(f"Not measured, as there was no time: {', '.join(counts)}.")
    if not result.is_of_run and not fbgemm.is_installed():
        lines.append("Not measured: operators of fbgemm (fbgemm_gpu is not installed).")
    if result.worse:
        what = "exact matches alone count" if result.is_of_run else "left out of the table"
        lines.append(f"Not better than before on operators that were held out, {what}: {', '.join(result.worse)}.")
    return lines


def _plain(result: _Found, table: Path) -> dict[str, Any]:
    return {
        "table": str(table),
        "device": result.machine,
        "measured": len(result.measured),
        "in_table": len(result.kept_operators),
        "families": [
            {
                "family": each.family,
                "measured": each.measured,
                "held_out": len(each.errors),
                "error_before": each.typical_before,
                "error": each.typical,
                "is_left_out": each.is_worse and not result.is_of_run,
            }
            for each in result.judged
        ],
        "not_measured": {family: dict(whys) for family, whys in reasons(result.refused).items()},
        "no_time": dict(result.late),
        "share_of_run": result.of_run,
        "between_events_us": result.held_us,
        "host": None if result.host is None else eager_host.plain(result.host),
    }


def _view(result: _Found, like: Cluster, table: Path) -> CalibrationView:
    rows = [
        {
            "family": each.family,
            "measured": each.measured,
            "mean_before": nan if each.typical_before is None else each.typical_before,
            "mean_after": nan if each.typical is None else each.typical,
            "remark": "not better" if each.is_worse else "",
        }
        for each in sorted(result.judged, key=lambda each: each.family)
    ]
    host = None if result.host is None else eager_host.host_view(result.host, like.host.gpu.eager)
    return CalibrationView(
        data=_plain(result, table),
        tables={"families": pd.DataFrame(rows), **(host.tables if host else {})},
        words={"families": "\n".join(_sentences(result)), **(host.words if host else {})},
        of={"families": f"{len(result.measured):,} operators of {result.machine}"},
    )
