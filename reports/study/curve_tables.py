"""Show curves in the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType

from reports.study.curves import COMMUNICATION, GRADIENTS, exposed_of, hiding, total_change
from reports.terminal import text
from reports.terminal.rows import records

Frames = Mapping[str, pd.DataFrame]
# The `study.json` of each curve, by its name.
Abouts = Mapping[str, Mapping[str, Any]]

# Short names of a step's parts, to fit 80 columns.
_SHORT = {"exposed transfer": "transfer", "waiting for other ranks": "waiting", "step skew": "skew"}
# Parameters of less elasticity are listed by name only.
_NOTHING = 0.001


def summarize(frames: Frames, abouts: Abouts) -> RenderableType:
    """Return each curve's table, its verdict in a sentence, and the failed points."""
    shown = {"scaling": _scaling, "sensitivity": _sensitivity, "overlap": _overlap}
    parts = [part for name, show in shown.items() if name in frames for part in show(frames[name], abouts[name])]
    return Group(*parts)


@text.json_ready
def as_json(frames: Frames, abouts: Abouts, folder: str) -> dict[str, Any]:
    """Return all rows of all curves, and the step's change by all parameters of the sensitivity together."""
    content: dict[str, Any] = {"folder": folder, **{name: records(frame) for name, frame in frames.items()}}
    if "sensitivity" in frames:
        content["step_change"] = total_change(frames["sensitivity"])
    if "scaling" in frames:
        content["left_out"] = abouts["scaling"]["curve"]["left_out"]
    return content


def _done(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame["status"] == "done").to_numpy(bool)]


def _failed(frame: pd.DataFrame, called: Sequence[str]) -> list[RenderableType]:
    """Return which points failed and why; points with equal sentences share one."""
    by_sentence: dict[str, list[str]] = {}
    for name, row in zip(called, records(frame), strict=True):
        if row["status"] != "done":
            by_sentence.setdefault(f"{row['status']}: {row['sentence']}", []).append(name)
    return [text.paragraph(f"not there: {', '.join(names)}: {why}") for why, names in by_sentence.items()]


def _scaling(frame: pd.DataFrame, about: Mapping[str, Any]) -> list[RenderableType]:
    curve, parts = about["curve"], []
    titles = {
        "weak": "Weak scaling: the same batch of a rank on more hosts",
        "strong": "Strong scaling: the same batch in all, divided among more ranks",
    }
    for kind, title in titles.items():
        points = frame[(frame["scaling"] == kind).to_numpy(bool)]
        rows = [
            [
                f"{row['hosts']:,}",
                f"{row['gpus']:,}",
                text.number(row["batch"]),
                text.duration(row["step_ns"]),
                text.number(row["samples_per_s"]),
                text.percent(row["efficiency"]),
                text.percent(row["exposed_share"]),
                f"{_SHORT.get(row['limit'], row['limit'])} {text.percent(row['limit_share'])}",
            ]
            for row in records(_done(points))
        ]
        columns = ["hosts", "GPUs", "batch", "step", "samples/s", "efficiency", "exposed", "most of it"]
        if rows:
            parts.append(text.table(title, columns, rows, left=0))
        parts += _failed(points, [f"{kind} on {text.counted(count, 'host')}" for count in points["hosts"]])
    if parts and curve.get("plans"):
        parts.append(text.paragraph("The planner places the tables anew for each number of hosts and each batch."))
    if curve["left_out"]:
        whole = f"{curve['batch'] * curve['hosts'] * curve['gpus_per_host']:,} samples"
        hosts = ", ".join(map(str, curve["left_out"]))
        parts.append(text.paragraph(f"Strong scaling on {hosts} hosts is left out: {whole} do not divide evenly."))
    if curve["without_batch"]:
        parts.append(text.paragraph(f"Strong scaling is left out: {curve['without_batch']}"))
    return parts


def _sensitivity(frame: pd.DataFrame, about: Mapping[str, Any]) -> list[RenderableType]:
    change, done = about["curve"]["change"], _done(frame)
    matters = (done["elasticity"].abs() >= _NOTHING).to_numpy(bool)
    rows = [
        [
            _short(row["parameter"]),
            row["value"],
            f"{100 * row['uncertainty']:.2g} % {row['source']}" if row["uncertainty"] else row["source"],
            f"{row['elasticity']:+.3f}",
            f"{100 * row['step_change']:.2f} %",
        ]
        for row in records(done[matters])
    ]
    title = f"Sensitivity of the step, each parameter times and over {1 + change:g}, the plan as it is"
    columns = ["parameter", "value", "off by", "elasticity", "step +-"]
    total = total_change(frame)
    words = (
        f"Elasticity -0.5: of 1 % more the step gets 0.5 % shorter. By all of them the step may be off by"
        f" {100 * total:.1f} %: residuals of a calibration are typical errors, parameters of one group are off"
        " together, others are added as squares."
    )
    flat = [_short(one) for one in done["parameter"][~matters]]
    nothing = [text.paragraph(f"No effect (elasticity below {_NOTHING}): {', '.join(flat)}")] if flat else []
    table = [text.table(title, columns, rows, left=3)] if rows else []
    return [*table, text.paragraph(words), *nothing, *_failed(frame, [_short(one) for one in frame["parameter"]])]


def _short(key: str) -> str:
    return key.removeprefix("cluster.")


def _overlap(frame: pd.DataFrame, about: Mapping[str, Any]) -> list[RenderableType]:
    threshold = about["curve"]["threshold"]
    has_gradients = bool(frame["gradients_hidden"].notna().any())
    rows = [
        [
            f"{row['batch']:,}",
            text.duration(row["step_ns"]),
            text.number(row["samples_per_s"]),
            text.percent(row["exposed_share"]),
            *([text.percent(row["gradients_share"]), text.percent(row["gradients_hidden"])] if has_gradients else []),
        ]
        for row in records(_done(frame))
    ]
    of_gradients = ["gradients exposed", "hidden"] if has_gradients else []
    columns = ["batch", "step", "samples/s", "exposed", *of_gradients]
    table = [text.table("Communication that no computation hides, by the batch of a rank", columns, rows, left=0)]
    lines = [f"{of}: {verdict(frame, of, threshold)}" for of in (GRADIENTS, COMMUNICATION)]
    failed = _failed(frame, [f"batch {batch:,}" for batch in frame["batch"]])
    return [*(table if rows else []), text.paragraph("\n".join(lines)), *failed]


def verdict(overlaps: pd.DataFrame, of: str, threshold: float) -> str:
    """Return at which batch such communication begins or stops to be hidden, in words without a full stop."""
    points = exposed_of(overlaps, of)
    if not len(points):
        return "there is none"
    limit = f"{100 * threshold:g} % of the step"
    found = records(hiding(overlaps, threshold).query("of == @of"))
    between = f"from {points['batch'].min():,} to {points['batch'].max():,}"
    if not found:
        if (points["share"] <= threshold).all():
            return f"hidden at every batch {between}: at most {limit} exposed"
        return f"never hidden at a batch {between}: at least {text.percent(points['share'].min())} of the step exposed"
    return "; ".join(
        f"hidden {'from' if row['hidden_batch'] > row['exposed_batch'] else 'up to'} a batch of"
        f" {row['hidden_batch']:,}, not at {row['exposed_batch']:,} (at most {limit} exposed)"
        for row in found
    )
