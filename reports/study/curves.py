"""Compute curves from their studies: scaling over hosts, sensitivity to hardware figures, hidden communication.

All functions are pure, of a study's frame and of the "curve" entry of its `study.json`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.step_breakdown import ADDING_UP
from reports.store.columns import frame_of_columns, frame_of_rows
from reports.study.frame import baseline_of, study_frame
from reports.study.rows import STUDY_FILE, about_of

About = Mapping[str, Any]  # study.json, whose "curve" has how the curve was made

NAMES = ("scaling", "sensitivity", "overlap")
GRADIENTS, COMMUNICATION = "gradients", "communication"
_END = {"status": "str", "sentence": "str"}
# `limit`: the largest part of a step, and `limit_share`, its share of the step.
SCALING = {
    "scaling": "str",
    **dict.fromkeys(["hosts", "gpus"], "int"),
    **dict.fromkeys(["batch", "step_ns", "samples_per_s", "efficiency", "exposed_share"], "float"),
    "limit": "str",
    "limit_share": "float",
    **_END,
}
# `step_change`: the step's relative change from the parameter's uncertainty alone.
SENSITIVITY = {
    **dict.fromkeys(["parameter", "value"], "str"),
    **dict.fromkeys(["elasticity", "uncertainty", "step_change", "step_change_ns"], "float"),
    **dict.fromkeys(["source", "group"], "str"),
    **_END,
}
# `gradients_share`: the step's share with exposed reduction of gradients; `gradients_hidden`: the reduction's hidden
# share.
OVERLAP = {
    "batch": "int",
    **dict.fromkeys(["step_ns", "samples_per_s", "exposed_share", "gradients_share", "gradients_hidden"], "float"),
    **_END,
}
# Neighbouring batches of which one hides the communication and the other does not.
HIDING = {"of": "str", **dict.fromkeys(["hidden_batch", "exposed_batch"], "int")}
# The ratio of neighbouring batches at which the search ends.
_CLOSE = 1.02


def scaling(frame: pd.DataFrame, about: About) -> pd.DataFrame:
    """Return weak scaling, then strong, by hosts; `efficiency` is a GPU's samples/s over those of the first point."""
    curve = about["curve"]
    found = frame.sort_values(["index"]).assign(
        gpus=frame["cluster.hosts"].astype("int64") * curve["gpus_per_host"],
        given=frame[curve["batch_key"]].astype("Float64").to_numpy("float64", na_value=np.nan),
    )
    whole = []
    for kind, points in (("weak", found[found["given"].isna()]), ("strong", found[found["given"].notna()])):
        batch = points["given"].fillna(np.nan if curve["batch"] is None else float(curve["batch"]))
        done = (points["status"] == "done").to_numpy(bool)
        pace = (batch if kind == "strong" else 1.0) / points["step_ns"]  # proportional to samples per ns of a GPU
        first = pace[done].iloc[0] if done.any() else np.nan
        columns = {name: points[name] for name in ("gpus", "step_ns", "samples_per_s", "exposed_share", *_END)}
        limits = [_limit(row) for row in points[list(ADDING_UP)].to_dict("records")]
        rest = {
            "scaling": [kind] * len(points),
            "hosts": points["cluster.hosts"].astype("int64"),
            "batch": batch,
            "efficiency": pace / first,
            "limit": [name for name, _ in limits],
            "limit_share": [share for _, share in limits],
        }
        whole.append(frame_of_columns(columns | rest, SCALING))
    return pd.concat(whole, ignore_index=True)


def _limit(parts: Mapping[Any, float]) -> tuple[str, float]:
    """Return the part of a step that takes most of it, and its share."""
    known = {name: value for name, value in parts.items() if not math.isnan(value)}
    if not known:
        return "", math.nan
    most = max(known, key=lambda name: known[name])
    return ADDING_UP[most], known[most] / sum(known.values())


def sensitivity(frame: pd.DataFrame, about: About) -> pd.DataFrame:
    """Return a row for each parameter, the largest elasticity first.

    `elasticity` is d ln(step) / d ln(parameter), from steps with the parameter times and over 1 + `change`; where one
    of both cannot be simulated, such as a share above 1, from the other and the unchanged step.
    """
    change = math.log1p(about["curve"]["change"])
    base = baseline_of(frame)["step_ns"]
    base_ns = float(base.iloc[0]) if len(base) else math.nan
    rows = []
    for one in about["curve"]["parameters"]:
        points = frame[frame[one["key"]].notna().to_numpy(bool)]
        more_ns, less_ns = (_step_of(points, one, name) for name in ("more", "less"))
        ends = [end for end in (more_ns, less_ns) if not math.isnan(end)]
        width = change * len(ends)
        upper, lower = (base_ns if math.isnan(end) else end for end in (more_ns, less_ns))
        elasticity = math.log(upper / lower) / width if ends else math.nan
        failed = points[(points["status"] != "done").to_numpy(bool)]
        share = abs(elasticity) * one["uncertainty"]
        rows.append(
            {
                "parameter": one["key"],
                "value": str(one["value"]),
                "elasticity": elasticity,
                **{name: one[name] for name in ("uncertainty", "source", "group")},
                "step_change": share,
                "step_change_ns": share * base_ns,
                "status": "done" if ends else str(failed["status"].iloc[0]),
                "sentence": "" if ends else str(failed["sentence"].iloc[0]),
            }
        )
    found = frame_of_rows(rows, SENSITIVITY)
    order = found["elasticity"].abs().sort_values(ascending=False, kind="stable", na_position="last").index
    return found.loc[order].reset_index(drop=True)


def _step_of(points: pd.DataFrame, parameter: Mapping[str, Any], name: str) -> float:
    at = points[((points[parameter["key"]] == parameter[name]) & (points["status"] == "done")).to_numpy(bool)]
    return float(at["step_ns"].iloc[0]) if len(at) else math.nan


def total_change(sensitivities: pd.DataFrame) -> float:
    """Return the step's possible error by all parameters: errors of a group add up, groups are independent."""
    of_group = sensitivities.groupby("group")["step_change"].sum()
    return float(np.sqrt((of_group**2).sum()))


def overlap(frame: pd.DataFrame, about: About) -> pd.DataFrame:
    """Return a row for each batch of a rank, by batch."""
    columns = {
        "batch": frame[about["curve"]["batch_key"]].astype("int64"),
        **{name: frame[name] for name in ("step_ns", "samples_per_s", "exposed_share", *_END)},
        "gradients_share": frame["gradients_exposed_ns"] / frame["step_ns"],
        "gradients_hidden": 1 - frame["gradients_exposed_ns"] / frame["gradients_ns"],
    }
    found = frame_of_columns(columns, OVERLAP)
    return found.sort_values("batch", kind="stable").reset_index(drop=True)


def hiding(overlaps: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """Return neighbouring batches of which one exposes at most `threshold` of the step, and the other more."""
    rows = [(of, *pair) for of in (GRADIENTS, COMMUNICATION) for pair in _neighbours(overlaps, of, threshold)]
    return frame_of_rows(rows, HIDING)


def exposed_of(overlaps: pd.DataFrame, of: str) -> pd.DataFrame:
    """Return the exposed share of a step by batch size (`batch`, `share`), of all communication or of gradients only.

    Batch sizes that failed, or have no such communication, are left out.
    """
    share = overlaps["exposed_share"] if of == COMMUNICATION else overlaps["gradients_share"]
    is_known = (overlaps["status"] == "done") & share.notna()
    if of == GRADIENTS:
        is_known &= overlaps["gradients_hidden"].notna()  # nan if there are no gradients to hide
    return pd.DataFrame({"batch": overlaps["batch"], "share": share})[is_known.to_numpy(bool)]


def _neighbours(overlaps: pd.DataFrame, of: str, threshold: float) -> Iterator[tuple[int, int]]:
    known = exposed_of(overlaps, of)
    points = list(zip(known["batch"].tolist(), (known["share"] <= threshold).tolist(), strict=True))
    for (one, is_hidden), (other, hides_too) in pairwise(points):
        if is_hidden != hides_too:
            yield (one, other) if is_hidden else (other, one)


def batches_between(overlaps: pd.DataFrame, threshold: float) -> list[int]:
    """Return batches to simulate next, halfway between neighbours until these are within 2 %, without tried ones."""
    tried = set(overlaps["batch"].tolist())
    found = []
    for pair in hiding(overlaps, threshold)[["hidden_batch", "exposed_batch"]].to_numpy(int).tolist():
        low, high = sorted(pair)
        middle = round(math.sqrt(low * high))
        if high > _CLOSE * low and middle not in tried and middle not in found:
            found.append(middle)
    return found


def curves_of(folder: Path) -> dict[str, pd.DataFrame]:
    """Return the curves in a folder of `twinstep curves`, by name; with `overlap` also `hiding`.

    Raises:
        ReportError: one of them is damaged.
    """
    found = {}
    for name, curve in (("scaling", scaling), ("sensitivity", sensitivity), ("overlap", overlap)):
        if (folder / name / STUDY_FILE).is_file():
            about = about_of(folder / name)
            found[name] = curve(study_frame(folder / name), about)
            if name == "overlap":
                found["hiding"] = hiding(found[name], about["curve"]["threshold"])
    return found
