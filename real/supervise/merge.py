"""Merges the spools of all ranks, whole or torn, into one recording on one time axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from real.launch.job import Job
from real.machine import cores
from real.rank.journal import Row, metric, span, with_true_starts
from real.rank.lanes import SAME_CLOCK, Alignment, Sight
from real.supervise import spool
from real.supervise.spool import Spool
from scenarios.seam.program import Program
from scenarios.seam.trace import MemoryRow, Metric, PlanRow, Recording, RunInfo, Span
from scenarios.versions import versions

R = TypeVar("R")


def spool_head(own: Spool, hostname: str, device: str, program: Program, look: Sight) -> None:
    """Spool what a rank knows before it begins; `device` is the name of its processor or GPU."""
    own.append(
        "head",
        {
            "hostname": hostname,
            "device": device,
            "cores": cores(),
            "plan": [dataclasses.astuple(row) for row in program.plan],
            "memory": [dataclasses.astuple(row) for row in program.memory],
        },
    )
    own.append("sight", dataclasses.astuple(look))


def merge(
    job: Job, spools: Mapping[int, bytes], *, lanes: int, elapsed_s: float, error: str | None = None
) -> Recording:
    """Merge the ranks' spools, by rank, into one recording, with times from the first issue on.

    `lanes` is the number of calls of one group that the library serves at a time, `error` why the recording is
    incomplete; None if it is complete.
    """
    read = [_read(spools[rank]) for rank in sorted(spools)]
    # From the first issue of any rank: clocks count from the machine's boot.
    zero_ns = min((row[_TIMES][0] for rank in read for row in rank.spans), default=0)
    spans = with_true_starts(
        (span(_move_row(row, lambda ns: ns - zero_ns)) for rank in read for row in rank.spans), lanes
    )
    # A rank that was lost before it began has no head.
    heads = {rank: one.head for rank, one in zip(sorted(spools), read, strict=True) if one.head is not None}
    first = heads[min(heads)] if heads else {"plan": [], "memory": []}
    residual_ns = max((one.alignment.residual_ns for one in read), default=0)
    return Recording(
        info=_info(job, heads, clock_residual_ns=residual_ns, elapsed_s=elapsed_s, error=error),
        spans=spans,
        metrics=sorted((item for rank in read for item in rank.metrics), key=lambda m: (m.rank, m.step, m.name)),
        plan=_rows(PlanRow, first["plan"]),
        memory=_rows(MemoryRow, first["memory"]),
        sources={source.name: source.text for source in job.scenario.sources},
    )


@dataclasses.dataclass(slots=True)
class _Read:
    """The content of one rank's spool."""

    head: dict[str, Any] | None
    alignment: Alignment
    spans: list[Row]
    metrics: list[Metric]


def _read(data: bytes) -> _Read:
    head: dict[str, Any] | None = None
    sights: list[Sight] = []
    spans: list[Row] = []
    metrics: list[Row] = []
    for kind, value in spool.frames(data):
        if kind == "head":
            head = value
        elif kind == "sight":
            local_ns, offset_ns, error_ns = value
            sights.append(Sight(local_ns=local_ns, offset_ns=offset_ns, error_ns=error_ns))
        else:
            {"spans": spans, "metrics": metrics}[kind].extend(value)
    first = sights[0] if sights else SAME_CLOCK
    alignment = Alignment(first=first, last=sights[1] if len(sights) > 1 else None)
    return _Read(
        head, alignment, [_move_row(row, alignment.on_axis_ns) for row in spans], [metric(row) for row in metrics]
    )


# Positions of a row's times: issue, start, end, begin and end of the wait (both -1 if there was none).
_NAMES = [field.name for field in dataclasses.fields(Span)]
_TIMES = slice(_NAMES.index("issued_ns"), _NAMES.index("wait_until_ns") + 1)


def _move_row(row: Row, move: Callable[[int], int]) -> Row:
    """Return a span's row with moved times."""
    # Tuples, no `Span`s: runs have millions of rows, and creating a `Span` takes microseconds.
    issued, start, end, wait_from, wait_until = row[_TIMES]
    waited = (wait_from if wait_from < 0 else move(wait_from), wait_until if wait_until < 0 else move(wait_until))
    return (*row[: _TIMES.start], move(issued), move(start), move(end), *waited, *row[_TIMES.stop :])


def _info(
    job: Job, heads: Mapping[int, dict[str, Any]], *, clock_residual_ns: int, elapsed_s: float, error: str | None
) -> RunInfo:
    scenario = job.scenario
    gpus = scenario.cluster.host.gpus
    return RunInfo(
        name=scenario.name,
        world="real",
        digest=scenario.digest(),
        scenario=scenario.as_dict(),
        seed=scenario.run.seed,
        world_size=scenario.cluster.world_size,
        started=job.started,
        versions=versions(),
        hosts=tuple(heads.get(host * gpus, {}).get("hostname", "") for host in range(scenario.cluster.hosts)),
        complete=error is None,
        error=error or "",
        clock_residual_ns=clock_residual_ns,
        elapsed_s=elapsed_s,
        played_on=job.played_on,
        devices=tuple(dict.fromkeys(one["device"] for _, one in sorted(heads.items()) if "device" in one)),
        cores=sum({head["hostname"]: head.get("cores", 0) for head in heads.values()}.values()),
    )


def _rows(kind: type[R], rows: Sequence[Row]) -> list[R]:
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return [kind(**dict(zip(names, row, strict=True))) for row in rows]
