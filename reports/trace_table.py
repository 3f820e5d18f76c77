"""Make tables of operators from profiler traces and runs; this entry point may import both reports and scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from reports.errors import ReportError
from reports.kineto.calls import calls_of
from reports.kineto.compute_times import Times
from reports.kineto.recording import read_traces
from reports.kineto.trace_file import TraceFile
from reports.store import replace
from reports.terminal.text import percent, printable
from scenarios.kernel_tables.file import Origin, write_table
from scenarios.kernel_tables.row import MeasuredOperator, merge_rows
from scenarios.seam.operations.as_json import operations_of

# Rows, their origin, and one sentence for each coverage note.
Table = tuple[list[MeasuredOperator], Origin, list[str]]
_NAMED, _NAMED_SHARE = 3, 5e-4  # number of operators named in a note, and the least share of the time for that


def table_rows(paths: Sequence[Path]) -> Table:
    """Return the rows of all traces, their origin, and notes on the time that no row covers, each a sentence.

    Raises:
        ReportError: a file is not a trace, has no shapes of operators' arguments, or no kernels of a GPU.
    """
    return rows_of_traces(read_traces(paths))


def rows_of_traces(traces: Sequence[TraceFile]) -> Table:
    """Return `table_rows` of traces that were read already."""
    from scenarios.kernel_tables.called import rows_of  # noqa: PLC0415 - loads torch

    found, notes, gpus, dates = [], [], [], []
    for trace in traces:
        shown = printable(trace.path)
        if not trace.on_gpu:
            raise ReportError(f"{shown}: no kernels of a GPU; expected a trace of a program that ran on one")
        calls = calls_of(trace)
        if not calls.has_shapes:
            raise ReportError(f"{shown}: no shapes of arguments; expected a trace of profile(record_shapes=True)")
        rows = rows_of(calls.calls, calls.parameters)
        found.append(rows.rows)
        left = {**rows.left_out, "kernels that no operator launched": calls.left_out_us}
        notes.append(_coverage(shown, "computing kernels'", left, rows.us))
        gpus.append(calls.gpu)
        dates.append(calls.date or datetime.fromtimestamp(trace.path.stat().st_mtime, UTC).date().isoformat())
    if len(set(gpus)) > 1:
        notes.append(f"traces of several GPUs: {', '.join(dict.fromkeys(gpus))}; their rows are means over all")
    names = ", ".join(printable(trace.path.name) for trace in traces)
    origin = Origin(machine=gpus[0] or "GPU", date=max(dates), source=f"torch.profiler trace {names}")
    return merge_rows(found), origin, notes


def rows_of_runs(times: Times, names: Sequence[str]) -> Table:
    """Return rows, origin and notes from the computations of measured runs; `names` are the runs' names.

    Raises:
        ReportError: no computation of the runs is of a single described operator.
    """
    shown = ", ".join(map(printable, names))
    timed = times.operators[times.operators["time_us"] > 0]
    if timed.empty:
        raise ReportError(
            f"{shown}: no computation of one operator that is described; expected a measured run of a program on GPUs."
            " Of a script, 'kineto TRACE --table' makes a table of a profiler's trace"
        )
    columns = (timed[name].tolist() for name in ("operations", "time_us", "calls"))
    rows = [
        MeasuredOperator(operations=operations_of(said), us=time_us, calls=calls)
        for said, time_us, calls in zip(*columns, strict=True)
    ]
    machines = ", ".join(times.devices) or "unknown"
    origin = Origin(machine=machines, date=times.date, source=f"computations of run {shown}")
    return (
        merge_rows([rows]),
        origin,
        [_coverage(shown, "computations'", times.others_us, sum(r.us * r.calls for r in rows))],
    )


def check_file(file: Path | None) -> None:
    """Check that a table may be written to this file.

    Raises:
        ReportError: the name does not end in .parquet, or the file exists already.
    """
    if file is not None:
        if file.suffix != ".parquet":
            raise ReportError(f"--table {file}: expected a file whose name ends in .parquet")
        replace.check_free(file)


def write_rows(file: Path, table: Table) -> int:
    """Write a table to a file and return its number of rows.

    Raises:
        ReportError: the disk refuses.
    """
    rows, origin, _ = table
    try:
        write_table(file, rows, origin)
    except OSError as error:
        raise ReportError(f"--table {file}: could not be written: {error.strerror or error}") from None
    return len(rows)


def _coverage(shown: str, whose: str, left: Mapping[str, float], rows_us: float) -> str:
    """Return a sentence with the share of the time that rows cover, and the operators that take most of the rest."""
    whole = rows_us + sum(left.values())
    note = f"{shown}: {percent(rows_us / whole if whole else 0.0)} of the {whose} time is in rows"
    most = sorted(left.items(), key=lambda one: -one[1])[:_NAMED]
    rest = [f"{name} {percent(us / whole)}" for name, us in most if us > _NAMED_SHARE * whole]
    return note + (f"; left out: {', '.join(rest)}" if rest else "")
