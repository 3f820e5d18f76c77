"""Tables of the kernels in a profiler's traces, for terminals and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType

from reports.analysis.frames import STEP
from reports.kineto.operators import BACKWARD, FORWARD, OPTIMIZER
from reports.kineto.recording import Profile
from reports.store.columns import fixed
from reports.terminal import text
from reports.terminal.rows import cells, records

_ROWS = 16
_OF_STEPS = {"calls_per_step": "float", "median_ns": "float", "mean_ns": "float", "share": "float"}
# Times of one rank in one step; `share` is of the time of all kernels.
BY_KIND = {"kind": "str", "kernel": "str", **_OF_STEPS}
BY_LABEL = {"label": "str", "annotated": "bool", **_OF_STEPS}
_BY_PHASE = {"forward_ns": "float", "backward_ns": "float", "optimizer_ns": "float", "share": "float"}
BY_OPERATOR = {"operator": "str", "calls_per_step": "float", **_BY_PHASE}
BY_MODULE = {"module": "str", "calls_per_step": "float", **_BY_PHASE}
TOP_KERNELS = {
    "name": "str", "kernel": "str", "calls": "int", "total_ns": "int", "median_ns": "float", "share": "float",
}  # fmt: skip
_CELLS = ["median_ns", "calls_per_step", "share"]


def kernels(profile: Profile) -> pd.DataFrame:
    """Return one row for each kernel inside a step.

    Columns are `rank`, `step`, `kind`, `kernel`, `label`, `annotated`, `name`, `operator`, `module`, `phase` and
    `duration_ns`.
    """
    kinds = {**dict.fromkeys(["rank", "step"], "int"), **dict.fromkeys(["kind", "kernel", "label", "name"], "str")}
    inside = [piece for piece in profile.pieces if piece.step >= 0]
    columns: dict[str, Any] = {name: [getattr(piece, name) for piece in inside] for name in kinds}
    columns["annotated"] = [piece.origin.is_annotated for piece in inside]
    columns["operator"] = [piece.origin.operator for piece in inside]
    paths = {modules: " / ".join(modules) for modules in {piece.origin.modules for piece in inside}}
    columns["module"] = [paths[piece.origin.modules] for piece in inside]
    columns["phase"] = [piece.origin.phase for piece in inside]
    columns["duration_ns"] = [piece.end_ns - piece.start_ns for piece in inside]
    words = dict.fromkeys(["operator", "module", "phase"], "str")
    return fixed(columns, {**kinds, "annotated": "bool", **words, "duration_ns": "int"})


def tables(profile: Profile, frame: pd.DataFrame | None = None) -> dict[str, pd.DataFrame]:
    """Return `BY_KIND`, `BY_LABEL`, `BY_OPERATOR`, `BY_MODULE` and `TOP_KERNELS`, each with the longest times first.

    A group's times in one rank's step are added up; medians and means then go over all ranks and steps, and steps
    without the group count as 0. `frame` is that of `kernels`, if the caller has it.
    """
    frame = kernels(profile) if frame is None else frame
    steps = sum(span.kind == STEP for span in profile.recording.spans)
    whole = float(frame["duration_ns"].sum())
    by_name = frame.groupby(["name", "kernel"], sort=True)["duration_ns"]
    index, total = by_name.size().index, by_name.sum().to_numpy()
    top = {
        "name": index.get_level_values(0), "kernel": index.get_level_values(1), "calls": by_name.size(),
        "total_ns": total, "median_ns": by_name.median(), "share": total / whole if whole else total * 0.0,
    }  # fmt: skip
    return {
        "by_kind": _by(frame, ["kind", "kernel"], steps, BY_KIND),
        "by_label": _by(frame, ["label", "annotated"], steps, BY_LABEL),
        "by_operator": _by_phase(frame, "operator", steps, BY_OPERATOR),
        "by_module": _by_phase(frame, "module", steps, BY_MODULE),
        "top_kernels": _longest(fixed(top, TOP_KERNELS), "total_ns"),
    }


def without_annotation(frame: pd.DataFrame) -> dict[str, float]:
    """Return the number of `kernels`, the number `without_annotation`, and the latter's shares of number and time.

    A kernel of a backward pass has the annotations and modules around its forward operator.
    """
    return _without(frame, "without_annotation", ~frame["annotated"])


def without_operator(frame: pd.DataFrame) -> dict[str, float]:
    """Return, in the form of `without_annotation`, the kernels that no known operator launched."""
    return _without(frame, "without_operator", frame["operator"] == "")


def _without(frame: pd.DataFrame, name: str, is_bare: pd.Series) -> dict[str, float]:
    bare = frame[is_bare.to_numpy(bool)]
    time, count = float(frame["duration_ns"].sum()), len(frame)
    return {
        "kernels": count,
        name: len(bare),
        "share_of_kernels": len(bare) / count if count else np.nan,
        "share_of_time": float(bare["duration_ns"].sum()) / time if time else np.nan,
    }


@text.json_ready
def as_json(profile: Profile) -> dict[str, Any]:
    """Return the whole tables as JSON-ready values."""
    frame = kernels(profile)
    return {
        "notes": list(profile.notes),
        "annotation": without_annotation(frame),
        "attribution": without_operator(frame),
        **{name: records(table) for name, table in tables(profile, frame).items()},
    }


def summarize(profile: Profile) -> RenderableType:
    """Return the tables for a terminal, each with its longest rows."""
    frame = kernels(profile)
    found, bare, unknown = tables(profile, frame), without_annotation(frame), without_operator(frame)
    info, steps = profile.recording.info, {s.step for s in profile.recording.spans if s.kind == STEP}
    outside = len(profile.pieces) - int(bare["kernels"])
    lines = [f"{info.name}: {text.counted(info.world_size, 'rank')}, {text.steps(sorted(steps))}"]
    count, no_operator, bare_time = int(bare["kernels"]), unknown["share_of_time"], bare["share_of_time"]
    lines.append(
        f"{text.counted(count, 'kernel')}; of their time {text.percent(no_operator)} without operator,"
        f" {text.percent(bare_time)} without annotation or module"
    )
    if outside:
        lines.append(f"{text.counted(outside, 'kernel')} outside any step, not in these tables")
    by_kind, by_label, top = found["by_kind"], found["by_label"], found["top_kernels"]
    named = by_kind["kernel"].where((by_kind["kernel"] != "").to_numpy(bool), by_kind["kind"])
    top = top.assign(kernel=top["kernel"].replace({"": "communication"}))
    of_step, title = ["a step", "calls", "share"], "Time by {}, the median of a rank's step"
    top_columns = ["kernel", "kind", "total", "median", "calls", "share"]
    top_cells = ["name", "kernel", "total_ns", "median_ns", "calls", "share"]
    return Group(
        text.paragraph("\n".join(lines), style="bold"),
        _shown(title.format("kind"), ["kind", *of_step], by_kind.assign(kind=named), ["kind", *_CELLS]),
        _shown(title.format("label"), ["label", *of_step], by_label, ["label", *_CELLS]),
        *_shown_by_phase(found),
        _shown("Top kernels", top_columns, top, top_cells, left=2),
    )


def _shown_by_phase(found: dict[str, pd.DataFrame]) -> list[RenderableType]:
    """Return the terminal tables by operator and by module, where any are known."""
    shown = []
    for key, without in (("operator", "no operator"), ("module", "no annotation or module")):
        frame = found[f"by_{key}"]
        if not (frame[key] != "").any():
            continue
        named = frame.assign(**{key: frame[key].replace({"": f"({without})"})})
        title = f"Time by {'operator' if key == 'operator' else 'annotation and module'}, the mean of a rank's step"
        columns = [key, "forward", "backward", "optimizer", "calls", "share"]
        of_phases = ["forward_ns", "backward_ns", "optimizer_ns", "calls_per_step", "share"]
        shown.append(_shown(title, columns, named, [key, *of_phases]))
    return shown


def _by_phase(frame: pd.DataFrame, key: str, steps: int, columns: dict[str, str]) -> pd.DataFrame:
    """Return the mean time of a rank's step by `key`, with a column for each phase, and kernels per step."""
    whole, count = float(frame["duration_ns"].sum()), max(steps, 1)
    sums = frame.groupby([key, "phase"])["duration_ns"].sum().unstack(fill_value=0)
    sums = sums.reindex(columns=[FORWARD, BACKWARD, OPTIMIZER], fill_value=0)
    total = sums.sum(axis=1)
    made = {
        key: sums.index, "calls_per_step": frame.groupby(key).size().reindex(sums.index) / count,
        **{f"{phase}_ns": sums[phase] / count for phase in sums.columns},
        "share": total / whole if whole else total * 0.0,
    }  # fmt: skip
    return _longest(fixed({name: list(made[name]) for name in columns}, columns), "share")


def _by(frame: pd.DataFrame, keys: list[str], steps: int, columns: dict[str, str]) -> pd.DataFrame:
    each = frame.groupby([*keys, "rank", "step"], sort=True)["duration_ns"].agg(["sum", "size"])
    rows = []
    whole = float(frame["duration_ns"].sum())
    for key, own in each.groupby(level=keys, sort=True):
        times = np.zeros(max(steps, len(own)))
        times[: len(own)] = own["sum"].to_numpy(float)
        share = times.sum() / whole if whole else 0.0
        calls = float(own["size"].sum()) / len(times)
        rows.append((*np.atleast_1d(np.array(key, object)), calls, float(np.median(times)), times.mean(), share))
    found = fixed({name: [row[at] for row in rows] for at, name in enumerate(columns)}, columns)
    return _longest(found, "mean_ns")


def _longest(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    return frame.sort_values([by, str(frame.columns[0])], ascending=[False, True], ignore_index=True, kind="stable")


def _shown(
    title: str, columns: Sequence[str], frame: pd.DataFrame, shown: Sequence[str], *, left: int = 1
) -> RenderableType:
    more = len(frame) - _ROWS
    rows = cells(frame.head(_ROWS), shown)
    return text.table(f"{title}; {more} more not shown" if more > 0 else title, columns, rows, left=left)
