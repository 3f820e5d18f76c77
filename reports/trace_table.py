"""Makes rows of a table of operators from profiler traces; an entry point, which knows reports and scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from reports.errors import ReportError
from reports.kineto.calls import calls_of
from reports.kineto.recording import read_traces
from reports.kineto.trace_file import Trace
from reports.terminal.text import percent, printable
from scenarios.kernel_tables.file import Origin
from scenarios.kernel_tables.merged import merged
from scenarios.kernel_tables.row import MeasuredOperator

Table = tuple[list[MeasuredOperator], Origin, list[str]]
_NAMED, _NAMED_SHARE = 3, 5e-4  # operators that a note names, and the least share of the time


def table_rows(paths: Sequence[Path]) -> Table:
    """Return the rows of all traces, where they are from, and notes of what is in no row, each a sentence.

    Raises:
        ReportError: a file is no trace, has no shapes of operators' arguments, or no kernels of a GPU.
    """
    return rows_of_traces(read_traces(paths))


def rows_of_traces(traces: Sequence[Trace]) -> Table:
    """Return as `table_rows` what traces say that are read already."""
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
        whole = rows.us + sum(left.values())
        notes.append(f"{shown}: {percent(rows.us / whole if whole else 0.0)} of the computing kernels' time is in rows")
        most = sorted(left.items(), key=lambda one: -one[1])[:_NAMED]
        if rest := [f"{name} {percent(us / whole)}" for name, us in most if us > _NAMED_SHARE * whole]:
            notes[-1] += f"; left out: {', '.join(rest)}"
        gpus.append(calls.gpu)
        dates.append(calls.date or datetime.fromtimestamp(trace.path.stat().st_mtime, UTC).date().isoformat())
    if len(set(gpus)) > 1:
        notes.append(f"traces of several GPUs: {', '.join(dict.fromkeys(gpus))}; their rows are means over all")
    names = ", ".join(printable(trace.path.name) for trace in traces)
    origin = Origin(machine=gpus[0] or "GPU", date=max(dates), source=f"torch.profiler trace {names}")
    return merged(found), origin, notes
