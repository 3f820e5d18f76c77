"""The data for the script of a study's page: all points, by columns, as compact JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports.page import FOLDER, PAGE_FILE
from reports.sections.study import FIRST
from reports.study.frame import ABSENT, came_out, command, goals_of, labels_of, named_points, option
from reports.study.measures import MEASURES, RATED, SHOWN
from reports.terminal import text

_DIGITS = 10
# More values of a key than these are merged with their neighbours, where each has a row or a column.
_MOST_LEVELS = 16
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(.*)")


def payload(frame: pd.DataFrame, about: Mapping[str, Any], folder: Path, away: str = "") -> dict[str, Any]:
    """Return all points of a study; `folder` is the study's, `away` the path to it from the page, such as "../"."""
    place = {index: at for at, index in enumerate(frame["index"].tolist())}
    named = named_points(frame, about)
    out = came_out(frame, about["stages"])["index"]
    goals = [goal.column for goal in goals_of(frame, about)]
    ordered = dict.fromkeys([*goals, *FIRST, *MEASURES])
    return {
        "index": frame["index"].tolist(),
        "out": [place[index] for index in out.tolist()],
        "keys": [_key(name, frame, about) for name in about["keys"]],
        "measures": [
            _measure(name, frame[name], about) for name in ordered if name in goals or frame[name].notna().any()
        ],
        "goals": goals,
        "front": _front_axes(frame, goals),
        "texts": {name: _encode(frame[name].astype(str).tolist()) for name in ("status", "sentence")},
        "commands": _encode([command(about, fidelity) for fidelity in frame["fidelity"].tolist()]),
        "runs": [away + href if href else "" for href in links(frame, folder)],
        "named": {name: place[int(row["index"].iloc[0])] for name, row in named.items()},
    }


def links(frame: pd.DataFrame, folder: Path) -> list[str]:
    """Return each point's link from the study's folder: to its run's page if written, else its folder; "" for none."""
    known = {run: _link(folder, run) for run in frame["run"].unique().tolist()}
    return [known[run] for run in frame["run"].tolist()]


def _link(folder: Path, run: str) -> str:
    if not run or not (folder / run).is_dir():
        return ""
    page = f"{run}/{FOLDER}/{PAGE_FILE}"
    return page if (folder / page).is_file() else f"{run}/"


def _front_axes(frame: pd.DataFrame, goals: Sequence[str]) -> list[str]:
    """Return the first two goals; for a single goal also a measure that it trades against."""
    others = ("world_size", "exposed_share", "memory_spare_bytes", "bytes_sent", "step_ns", "samples_per_s")
    varied = [name for name in others if name not in goals and frame[name].nunique() > 1]
    return [*goals, *varied, *goals][:2][::-1]


def _key(name: str, frame: pd.DataFrame, about: Mapping[str, Any]) -> dict[str, Any]:
    labels = labels_of(frame, name, about)
    varied = [one for one, index in zip(labels, frame["index"].tolist(), strict=True) if index > 0]
    ordered = in_order(dict.fromkeys([*varied, *labels]))
    at = {one: code for code, one in enumerate(ordered)}
    return {
        "name": name,
        "title": name,
        "labels": ordered,
        "options": ["" if one == ABSENT else option(name, one) for one in ordered],
        "codes": [at[one] for one in labels],
        **group_titles(ordered),
    }


def in_order(labels: Iterable[str]) -> list[str]:
    """Return labels sorted if they are numbers or quantities of one unit, else in their order; unchanged keys first."""
    rest = [one for one in labels if one != ABSENT]
    found = [_QUANTITY.fullmatch(one) for one in rest]
    if all(found) and len({one[2] for one in found if one}) == 1:
        rest = [one[0] for one in sorted((one for one in found if one), key=lambda one: float(one[1]))]
    return [*([ABSENT] if ABSENT in labels else []), *rest]


def group_titles(labels: Sequence[str]) -> dict[str, Any]:
    """Return `groups`, the titles of neighbours shown together, and `group`, the index of each label's group."""
    size = 1 if len(labels) <= _MOST_LEVELS else -(-len(labels) // _MOST_LEVELS)
    parts = [labels[at : at + size] for at in range(0, len(labels), size)]
    titles = [part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts]
    return {"groups": titles, "group": [at // size for at in range(len(labels))]}


def _measure(name: str, values: pd.Series[float], about: Mapping[str, Any]) -> dict[str, Any]:
    title, form = SHOWN[name]
    unit, scale = _unit(form, float(values.abs().max()))
    most = about["goals"][name] == "most" if name in about["goals"] else RATED.get(name)
    shown = name in FIRST or name in about["goals"]
    return {
        "name": name,
        "title": f"{title}, {unit}" if unit else title,
        "most": most,
        "first": shown,
        "values": [_short(value / scale) for value in values.tolist()],
    }


def _unit(form: Callable[[float], str], most: float) -> tuple[str, float]:
    """Return the unit of a whole column, and its size in the frame's unit."""
    if form is text.duration:
        return "ms", 1e6
    if form is text.size:
        return text.size_unit(most)
    return ("%", 0.01) if form is text.percent else ("", 1.0)


def _short(value: float) -> float | int | None:
    """Return the value to ten digits; None for nan."""
    if np.isnan(value):
        return None
    found = value if value.is_integer() else float(f"{value:.{_DIGITS}g}")
    return int(found) if found.is_integer() and abs(found) < 2**53 else found


def _encode(texts: Sequence[str]) -> dict[str, Any]:
    """Return each distinct text once, and its index for each row."""
    known = {one: code for code, one in enumerate(dict.fromkeys(texts))}
    return {"labels": list(known), "codes": [known[one] for one in texts]}
