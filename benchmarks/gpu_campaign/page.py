"""Writes the page of a campaign: measured beside predicted, what the harness costs, what was not measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.gpu_campaign.parts import DONE, Outcome
from benchmarks.gpu_campaign.plans import Plan
from benchmarks.gpu_campaign.predictions import (
    CALIBRATED,
    DATA_SHEET,
    TRACE,
    Key,
    Predicted,
    measured_ms,
    plain_steps,
)
from reports.errors import ReportError
from reports.trace_table import table_rows

_BASES = (DATA_SHEET, CALIBRATED, TRACE)
_MIB = 1 << 20
_NOTHING = "Nothing was measured."


def page(plan: Plan, folder: Path, outcomes: Sequence[Outcome], predicted: Mapping[Key, Predicted]) -> str:
    """Return the page in Markdown."""
    machine = machine_of(folder)
    lines = [f"# {machine['device']}, measured and predicted", ""]
    lines += [f"- {key}: {value}" for key, value in machine.items() if key != "device"]
    names = [name for name in (*plan.scripts, *plan.scenarios) if measured_ms(folder, name)]
    lines += ["", "## Steps", "", *_steps(names, folder, predicted)]
    lines += ["", "## What the harness costs", "", *_harness(names, folder)]
    lines += ["", "## Traces", "", *_traces(plan, folder)]
    lines += ["", "## Memory", "", *_memory([name for name in names if name in plan.scripts], folder, predicted)]
    lines += ["", "## Parts", "", *_parts(outcomes)]
    return "\n".join(lines) + "\n"


def _steps(names: Sequence[str], folder: Path, predicted: Mapping[Key, Predicted]) -> Iterable[str]:
    """Yield a row for each step: its measured median, and how far each prediction is off."""
    bases = [basis for basis in _BASES if any((name, basis) in predicted for name in names)]
    errors: dict[str, list[float]] = {basis: [] for basis in bases}
    rows = []
    for name in names:
        found = measured_ms(folder, name)
        step = found.get("plain", found.get("real", 0.0))
        cells = [name, f"{step:.3f} ms"]
        for basis in bases:
            one = predicted.get((name, basis))
            if one is None or one.why_not:
                cells.append("" if one is None else one.why_not)
                continue
            errors[basis].append(one.step_ms / step - 1)
            cells.append(f"{one.step_ms:.3f} ms, {errors[basis][-1]:+.1%}")
        rows.append(cells)
    rows.append(["mean of the errors' sizes", "", *(_mean(errors[basis]) for basis in bases)])
    return _table(["step", "measured", *(f"by {basis}" for basis in bases)], rows)


def _mean(errors: Sequence[float]) -> str:
    return f"{fmean(map(abs, errors)):.1%} of {len(errors)}" if errors else ""


def _harness(names: Sequence[str], folder: Path) -> Iterable[str]:
    """Yield a row for each script that ran in both ways."""
    rows = []
    for name in names:
        found = measured_ms(folder, name)
        if "plain" in found and "real" in found:
            plain, real, recorded = (found[way] for way in ("plain", "real", "recorded"))
            difference = f"{real - plain:+.3f} ms, {real / plain - 1:+.1%}"
            rows.append([name, f"{plain:.3f} ms", f"{real:.3f} ms", difference, f"{recorded:.3f} ms"])
    return _table(["step", "torchrun", "python -m real", "difference", "while every call is recorded"], rows)


def _traces(plan: Plan, folder: Path) -> Iterable[str]:
    """Yield what a table of operators has of each trace, and what it leaves out."""
    files = [file for name in plan.scripts if (file := folder / f"{name}.trace.json.gz").exists()]
    for file in files:
        try:
            yield from (f"- {note}" for note in table_rows([file])[2])
        except ReportError as error:
            yield f"- {error}"
    if not files:
        yield _NOTHING


def _memory(names: Sequence[str], folder: Path, predicted: Mapping[Key, Predicted]) -> Iterable[str]:
    """Yield a row for each script of which torch's allocator was asked."""
    rows = []
    for name in names:
        if not (folder / f"{name}.json").exists():
            continue
        peak, one = plain_steps(folder, name)["peak_bytes"], predicted.get((name, DATA_SHEET))
        if peak and one is not None and not one.why_not:
            said = f"{one.peak_bytes / _MIB:,.0f} MiB, {one.peak_bytes / peak - 1:+.1%}"
            rows.append([name, f"{peak / _MIB:,.0f} MiB", said])
    return _table(["step", "measured", "predicted"], rows)


def _parts(outcomes: Sequence[Outcome]) -> Iterable[str]:
    rows = [[one.part, one.ended, f"{one.took_s:.1f} s" if one.took_s else "", one.said] for one in outcomes]
    done = sum(one.ended == DONE for one in outcomes)
    return [f"{done} of {len(outcomes)} parts were measured.", "", *_table(["part", "", "took", ""], rows)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return [_NOTHING]
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def machine_of(folder: Path) -> dict[str, str]:
    """Return what is known of the machine that was measured: kept by the campaign when it began."""
    found: dict[str, str] = json.loads((folder / "machine.json").read_text())
    return found
