"""The report of curves: scaling over hosts, sensitivity to figures, and hidden communication."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from reports.sections.model import Block, Report, ReportSection, ReportTable, Words, on_terminal, table_of
from reports.study.curves import COMMUNICATION, GRADIENTS, exposed_of, hiding, total_change
from reports.terminal import text
from reports.terminal.rows import records
from reports.terminal.text import percent

Frames = Mapping[str, pd.DataFrame]
# Of each curve, its `study.json`.
About = Mapping[str, Any]
Abouts = Mapping[str, About]

# Parts of a step for which 80 columns have no room.
_SHORT = {"exposed transfer": "transfer", "waiting for other ranks": "waiting", "step skew": "skew"}
# Parameters of less elasticity are told by name alone.
_NOTHING = 0.001


@dataclass(frozen=True, slots=True)
class CurvesView:
    """A view of a scenario's curves: a frame and a description for each; `folder` is their folder as JSON names it."""

    frames: Frames
    abouts: Abouts
    folder: str = ""


def _finished_rows(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["status"] == "done").to_numpy(bool)]


def _tell_failed(frame: pd.DataFrame, called: Sequence[str]) -> list[Words]:
    """Return which curves are absent and why, each reason once with all that it concerns."""
    by_sentence: dict[str, list[str]] = {}
    for name, row in zip(called, records(frame), strict=True):
        if row["status"] != "done":
            by_sentence.setdefault(f"{row['status']}: {row['sentence']}", []).append(name)
    return [Words(f"left out: {', '.join(names)}: {why}") for why, names in by_sentence.items()]


def _scaling(frame: pd.DataFrame, curve: About) -> Iterator[Block]:
    titles = {
        "weak": "Weak scaling: the same batch per rank on more hosts",
        "strong": "Strong scaling: the same global batch, divided among more ranks",
    }
    columns = {"hosts": "hosts", "gpus": "GPUs", "batch": "batch", "step_ns": "step", "samples_per_s": "samples/s"}
    columns |= {"efficiency": "efficiency", "exposed_share": "exposed", "limit": "largest part"}
    for kind, title in titles.items():
        points = frame[(frame["scaling"] == kind).to_numpy(bool)]
        if len(done := _finished_rows(points)):
            limits = [
                f"{_SHORT.get(row['limit'], row['limit'])} {percent(row['limit_share'])}" for row in records(done)
            ]
            rates, batches = done["efficiency"].map(percent), done["batch"].map(text.number)
            yield table_of(title, done.assign(batch=batches, efficiency=rates, limit=limits), columns, left=0)
        yield from _tell_failed(points, [f"{kind} on {text.count_words(count, 'host')}" for count in points["hosts"]])
    if len(frame) and curve.get("plans"):
        yield Words("The planner places the tables anew for each number of hosts and each batch.")
    if curve["left_out"]:
        whole = f"{curve['batch'] * curve['hosts'] * curve['gpus_per_host']:,} samples"
        hosts = ", ".join(map(str, curve["left_out"]))
        yield Words(f"Strong scaling on {hosts} hosts is left out: {whole} do not divide evenly.")
    if curve["without_batch"]:
        yield Words(f"Strong scaling is left out: {curve['without_batch']}")


def _sensitivity(frame: pd.DataFrame, curve: About) -> Iterator[Block]:
    shown = frame.assign(parameter=frame["parameter"].str.removeprefix("cluster."))
    done = _finished_rows(shown)
    matters = (done["elasticity"].abs() >= _NOTHING).to_numpy(bool)
    rows = [
        [
            row["parameter"],
            row["value"],
            f"{100 * row['uncertainty']:.2g} % {row['source']}" if row["uncertainty"] else row["source"],
            f"{row['elasticity']:+.3f}",
            f"{100 * row['step_change']:.2f} %",
        ]
        for row in records(done[matters])
    ]
    title = f"Sensitivity of the step: each parameter times or divided by {1 + curve['change']:g}, the same plan"
    if rows:
        yield ReportTable(title, ["parameter", "value", "off by", "elasticity", "step +-"], rows, left=3)
    yield Words(
        f"Elasticity -0.5: a parameter that is 1 % larger makes the step 0.5 % shorter. Together the parameters may put"
        f" the step off by {100 * total_change(frame):.1f} %: parameters of one group by the calibration's typical"
        " error, groups added as squares."
    )
    if flat := done["parameter"][~matters].tolist():
        yield Words(f"No effect (elasticity below {_NOTHING}): {', '.join(flat)}")
    yield from _tell_failed(frame, shown["parameter"].tolist())


def _overlap(frame: pd.DataFrame, curve: About) -> Iterator[Block]:
    columns = {"batch": "batch", "step_ns": "step", "samples_per_s": "samples/s", "exposed_share": "exposed"}
    if frame["gradients_hidden"].notna().any():
        columns |= {"gradients_share": "gradients exposed", "hidden_share": "hidden"}
    done = _finished_rows(frame.assign(hidden_share=frame["gradients_hidden"]))
    if len(done):
        yield table_of("Exposed communication by batch per rank", done, columns, left=0)
    lines = [f"{of}: {verdict(frame, of, curve['threshold'])}" for of in (GRADIENTS, COMMUNICATION)]
    yield Words("\n".join(lines))
    yield from _tell_failed(frame, [f"batch {batch:,}" for batch in frame["batch"]])


def verdict(overlaps: pd.DataFrame, of: str, threshold: float) -> str:
    """At which batch such communication begins or stops to hide, in words without a full stop."""
    points = exposed_of(overlaps, of)
    if not len(points):
        return "there is none"
    limit = f"{100 * threshold:g} % of the step"
    found = records(hiding(overlaps, threshold).query("of == @of"))
    between = f"from {points['batch'].min():,} to {points['batch'].max():,}"
    if not found:
        if (points["share"] <= threshold).all():
            return f"hidden at every batch {between}: at most {limit} exposed"
        return f"hidden at no batch {between}: at least {text.percent(points['share'].min())} of the step exposed"
    return "; ".join(
        f"hidden {'from' if row['hidden_batch'] > row['exposed_batch'] else 'up to'} a batch of"
        f" {row['hidden_batch']:,}, not at {row['exposed_batch']:,} (at most {limit} exposed)"
        for row in found
    )


def _data(view: CurvesView) -> dict[str, Any]:
    """Return all rows of all curves, and what all parameters of the sensitivity together make of the step."""
    content: dict[str, Any] = {"folder": view.folder, **view.frames}
    if "sensitivity" in view.frames:
        content["step_change"] = total_change(view.frames["sensitivity"])
    if "scaling" in view.frames:
        content["left_out"] = view.abouts["scaling"]["curve"]["left_out"]
    return content


def _curve(name: str, title: str, blocks: Callable[[pd.DataFrame, About], Iterator[Block]]) -> ReportSection:
    """Return the section of one curve, where it is there."""

    def show(view: CurvesView) -> Iterator[Block]:
        if name in view.frames:
            yield from blocks(view.frames[name], view.abouts[name]["curve"])

    return ReportSection(name, title, [on_terminal(show)])


CURVES = Report(
    lines=lambda view: [],
    data=_data,
    sections=[
        _curve("scaling", "Scaling", _scaling),
        _curve("sensitivity", "Sensitivity", _sensitivity),
        _curve("overlap", "Hidden communication", _overlap),
    ],
)
