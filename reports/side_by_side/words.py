"""Sentences that compare several runs, and their settings for people."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from reports.analysis.frames import KEYS
from reports.analysis.step_breakdown import ADDING_UP, PARTS, steady_kept
from reports.sections.run.causes import latest
from reports.sections.run.headline import WORLDS, rests_on
from reports.side_by_side.frames import SideBySide
from reports.terminal import text
from reports.terminal.rows import operation_names, records
from scenarios.seam.trace import RunInfo

_SETTINGS_SAID = 3
_NAME_WIDTH = 10
_VALUE_WIDTH = 40
# Settings that sentences leave out, because they differ whenever the world does.
_UNSAID = frozenset({"played_on"})
# A smaller change counts as none.
_SAME = 0.005

# Titles of the numbers of `results`, in the order of a table.
NUMBERS = {
    "step_ns": "step time",
    "samples_per_s": "samples/s",
    "compute_ns": "compute",
    "communication_ns": "communication",
    "hidden_ns": "hidden",
    "transfer_ns": "exposed transfer",
    "wait_ns": "waiting for others",
    "idle_ns": "idle",
    "skew_ns": "step skew",
    "bytes_sent": "payload per rank",
    "memory_bytes": "max memory",
    "link_utilisation": "hottest link, mean",
    "link_busy_utilisation": "... while busy",
    "compute_over_mean": "compute, max/mean",
    "ids_over_mean": "ids, max/mean",
}


def numbers(found: SideBySide) -> dict[str, str]:
    """Return the `NUMBERS` that a table shows, with the one that compares steps first."""
    if not found.batches_differ:
        return NUMBERS
    first = {"samples_per_s": NUMBERS["samples_per_s"], "step_samples": "samples per step"}
    return {**first, **{name: words for name, words in NUMBERS.items() if name != "samples_per_s"}}


# Shown where steps have different numbers of samples.
DIFFERENT_BATCHES = "Steps train on different numbers of samples: compare samples/s"


def marks(names: list[str]) -> list[str]:
    """Return short names of runs: their names, or letters where a name is long."""
    if max(map(len, names)) <= _NAME_WIDTH:
        return names
    return [chr(ord("A") + at) if at < 26 else str(at + 1) for at in range(len(names))]


def labels(found: SideBySide) -> dict[str, str]:
    """Return distinct labels of runs by name: mark and name, or the name alone."""
    pairs = zip(marks(found.names), found.names, strict=True)
    return {name: name if mark == name else f"{mark}  {name}" for mark, name in pairs}


def about_run(info: RunInfo) -> str:
    """Return a line on a run: name, world, ranks, and whether it ended early."""
    early = "" if info.complete else f"; ENDED EARLY: {info.error or 'for an unknown reason'}"
    figures = f"; {text.printable(rests_on(info))}" if rests_on(info) else ""
    ranks = text.count_words(info.world_size, "rank")
    return f"{info.name}, {WORLDS.get(info.world, info.world)}, {ranks}{early}{figures}"


def settings_shown(found: SideBySide) -> list[list[str]]:
    """Return a row for each differing key, with its value in every run; tables with equal differences share one."""
    alike: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for field, rows in found.settings.groupby("field", sort=False):
        shown = (rows["pattern"].iloc[0], *(value_shown(str(field), one) for one in rows["value"]))
        alike.setdefault(shown, []).append((rows["key"].iloc[0], str(field)))
    return [
        [
            keys[0][0] if len({key for key, _ in keys}) == 1 else f"{pattern} ({len(keys)} tables)",
            *values,
        ]
        for (pattern, *values), keys in alike.items()
    ]


def value_shown(field: str, value: str) -> str:
    """Return a setting's value with the unit that its field's name implies; a dash where there is none."""
    try:
        number = float(value)
    except ValueError:
        return value or "-"
    forms = {"bytes_per_s": text.rate, "bytes": text.size, "_ns": text.duration}
    last = field.split(".")[-2:]
    form = next((form for ending, form in forms.items() if any(word.endswith(ending) for word in last)), None)
    if form is not None:
        return form(number)
    return f"{number:,.0f}" if number.is_integer() and abs(number) >= 1000 else f"{number:.6g}"


def more(ns: float) -> str:
    """Return a difference in time with its sign."""
    return f"+{text.duration(ns)}" if ns > 0 else text.duration(ns)


def sentences(found: SideBySide) -> list[str]:
    """Return a sentence for each run but the base: how its settings differ, and how its step changed."""
    return [f"{name}: {_request_line(found, at)}; {_became(found, at)}." for at, name in enumerate(found.names) if at]


def _request_line(found: SideBySide, at: int) -> str:
    said = [
        _say(row[0], row[1 + at], row[1], found.names[0])
        for row in settings_shown(found)
        if row[1 + at] != row[1] and row[0] not in _UNSAID
    ]
    rest = len(said) - _SETTINGS_SAID
    more_differ = f" and {text.count_words(rest, 'more setting')} differ{'' if rest > 1 else 's'}" if rest > 0 else ""
    return ", ".join(said[:_SETTINGS_SAID]) + more_differ if said else "the same settings"


def _say(key: str, value: str, base: str, base_name: str) -> str:
    name = "it" if key == "world" else key
    if value == "-":
        return f"no {name}"
    cut = text.shorten_distinctly((value, base), _VALUE_WIDTH)
    short, before = cut[value], cut[base]
    return f"{name} is {short}" + (f" instead of {before}" if base != "-" else f" (not set in {base_name})")


def _became(found: SideBySide, at: int) -> str:
    own, base = (row for row in records(found.results.iloc[[at, 0]]))
    if math.isnan(own["step_ns"]) or math.isnan(base["step_ns"]) or not own["step_ns"] or not base["step_ns"]:
        return "no two step times to compare"
    if _differ(own["step_samples"], base["step_samples"]):
        return _trains(own, base)
    times = f"({text.duration(own['step_ns'])} instead of {text.duration(base['step_ns'])})"
    ratio = own["step_ns"] / base["step_ns"]
    if abs(ratio - 1) < _SAME:
        return f"same step time ({text.duration(own['step_ns'])})"
    words = f"takes {ratio:.3g} times as long" if ratio > 1 else f"is {1 / ratio:.3g} times as fast"
    part, change = _mostly({name: own[name] - base[name] for name in ADDING_UP}, ratio > 1)
    why = f", mostly {PARTS[part]} ({more(change)})" if part else ""
    _, run = found.runs[at]
    late = latest(run, steady_kept(run)) if part == "wait_ns" and ratio > 1 else ""
    return f"the step {words} {times}{why}{late and ', '}{late}"


def _differ(own: float, base: float) -> bool:
    return not math.isnan(own) and not math.isnan(base) and own != base


def _trains(own: dict[str, Any], base: dict[str, Any]) -> str:
    """Return a comparison of steps with different numbers of samples: samples/s, and the part that grew per sample."""
    change = own["samples_per_s"] / base["samples_per_s"] - 1
    rates = f"({text.number(own['samples_per_s'])} instead of {text.number(base['samples_per_s'])})"
    steps = f"a step of {own['step_samples']:,.0f} instead of {base['step_samples']:,.0f} samples"
    times = f"takes {text.duration(own['step_ns'])} instead of {text.duration(base['step_ns'])}"
    if abs(change) < _SAME:
        return f"same samples/s {rates}; {steps} {times}"
    each = {name: own[name] / own["step_samples"] - base[name] / base["step_samples"] for name in ADDING_UP}
    part, _ = _mostly(each, change < 0)
    why = f", mostly by {PARTS[part]} per sample" if part else ""
    return f"{text.percent(abs(change))} {'fewer' if change < 0 else 'more'} samples/s {rates}{why}; {steps} {times}"


def _mostly(changes: dict[str, float], is_longer: bool) -> tuple[str, float]:
    """Return the part of a step that changed most in the step's direction, and its change.

    Returns "" and 0 if a change is nan, or none has that direction.

    Args:
        changes: the change of each part of a step, in ns.
        is_longer: whether the step became longer.
    """
    part = max(changes, key=lambda name: changes[name] if is_longer else -changes[name])
    toward = changes[part] if is_longer else -changes[part]
    is_known = not any(map(math.isnan, changes.values())) and toward > 0
    return (part, changes[part]) if is_known else ("", 0.0)


def operations_by_change(found: SideBySide) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield each operation's name and rows, one per run; the largest change first."""
    names = operation_names(found.operations.drop_duplicates(KEYS))
    groups = (rows for _, rows in found.operations.groupby(KEYS, sort=False))
    yield from zip(names, groups, strict=True)


def no_operations(found: SideBySide) -> str:
    """Return why there are no operations to compare."""
    is_left_out = bool(found.results["steps"].any())
    return "No run has kept spans of its steady steps." if is_left_out else "No rank of any run completed a step."


def medians_shown(rows: pd.DataFrame) -> list[str]:
    """Return the medians of one operation in every run; a dash where a run lacks it."""
    has = (rows["calls_per_step"] > 0).tolist()
    return [text.duration(ns) if own else "-" for ns, own in zip(rows["median_ns"].tolist(), has, strict=True)]


def exposed_shown(rows: pd.DataFrame) -> list[list[str]]:
    """Return changes of one operation's exposed transfer and waiting in every run; "" for a computation."""
    if rows["part"].iloc[0] != "communication":
        return [["", ""]] * len(rows)
    transfer = rows["exposed_change_ns"] - rows["wait_change_ns"]
    return [[more(one), more(other)] for one, other in zip(transfer, rows["wait_change_ns"], strict=True)]


def placement(kind: str, ranks: str) -> str:
    """Return how a table is sharded, and on which ranks; a dash where there is no such table."""
    return f"{kind} {ranks}" if kind else "-"
