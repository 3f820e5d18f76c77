"""Compute frames of the kernels in a profiler's traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import STEP
from reports.kineto.operators import BACKWARD, FORWARD, OPTIMIZER
from reports.kineto.recording import Profile
from reports.store.columns import frame_of_columns, frame_of_rows

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
    return frame_of_columns(columns, {**kinds, "annotated": "bool", **words, "duration_ns": "int"})


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
        "top_kernels": _longest(frame_of_columns(top, TOP_KERNELS), "total_ns"),
    }


def without_annotation(frame: pd.DataFrame) -> dict[str, float]:
    """Count kernels that lie within no annotation of the user (record_function, NVTX), with their shares of number and
    time.

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
    return _longest(frame_of_columns({name: list(made[name]) for name in columns}, columns), "share")


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
    found = frame_of_rows(rows, columns)
    return _longest(found, "mean_ns")


def _longest(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    return frame.sort_values([by, str(frame.columns[0])], ascending=[False, True], ignore_index=True, kind="stable")
