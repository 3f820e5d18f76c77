"""Compute operations' time, bytes, bandwidth and hidden communication; compare NCCL's formula with the link model.

Divide computations among the layers of modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from reports.analysis.frames import (
    COMPUTE,
    KEYS,
    STEP,
    Overlaps,
    call_columns,
    ints,
    is_collective,
    number_groups,
    texts,
)
from reports.analysis.intervals import Floats, Ints
from reports.analysis.statistics import weighted_quantiles
from reports.store.columns import frame_of_columns
from reports.store.parts import Part
from scenarios.seam.traits import TRAITS

_BYTES = ["bytes_in", "bytes_out", "bytes_sent"]
_TIMES = ["duration_ns", "hidden_ns", "wait_ns", "launch_ns"]
_SUMMED = ["calls", "unstated", *_TIMES, *_BYTES, "moving_ns", "size_bytes", "bus_bytes", "members"]
OPERATION_COLUMNS = [*KEYS, "kernel", "step", "rank", "host", "rank_count", "start_ns", "end_ns", *_BYTES]
OPERATION_COLUMNS += ["group", "call", "role", "launch_ns"]
# Columns of `operations` that need all members of a collective.
RATES = ("members", "size_bytes", "moving_ns", "algbw_bytes_per_s", "busbw_bytes_per_s")
FORMULA_COLUMNS = [*KEYS, "step", "group", "call", "rank_count", "start_ns", "end_ns", "formula_ns"]

OPERATIONS = {
    **dict.fromkeys(KEYS, "str"),
    "part": "str",
    "ranks": "int",
    "steps": "int",
    "calls": "int",
    "calls_per_step": "float",
    "median_ns": "float",
    "mean_ns": "float",
    "max_ns": "int",
    **dict.fromkeys([*_BYTES, "hidden_ns", "exposed_ns", "wait_ns", "launch_ns"], "float"),
    **dict.fromkeys(["hidden_share", "wait_share"], "float"),
    **dict.fromkeys(RATES, "float"),
    "role": "str",
}
# A layer's number in the path of a module, and how much longer than the shortest repeated layers may take as one row.
_LAYER, _ALIKE = r"(?<=\.)\d+(?=\.|$)", 1.25
_FIRST_LAYER = re.compile(r"((?:[^.]+\.)*?)(\d+)(?=\.|$)")
NO_LAYER = "(no layer)"
_PHASE = r"(?:^|\.)(forward|backward)(?:\.\d+)?$"
LAYERS = {
    **dict.fromkeys(["label", "layer", "operator", "shapes", "name", "phase"], "str"),
    **dict.fromkeys(["share", "time_ns", "launch_ns"], "float"),
}
FORMULAS = {
    **dict.fromkeys(KEYS, "str"),
    "calls": "int",
    **dict.fromkeys(["median_ns", "formula_ns", "difference"], "float"),
}


@dataclass(frozen=True, slots=True)
class _RankCalls:
    """A part's calls, summed by operation, rank and step: their time, and the number of ranks that a rank represents.

    `groups` are places in the columns of `names`, `roles` and `sums`, which have one row per operation; `sums` are over
    all its calls. `ranks` are all pairs of such a place and a rank, with the ranks that the rank represents.
    """

    names: dict[str, npt.NDArray[np.object_]]
    roles: npt.NDArray[np.object_]
    sums: dict[str, Floats]
    groups: Ints
    time_ns: Floats
    weight: Ints
    ranks: tuple[Ints, Ints, Ints]

    @classmethod
    def of(cls, part: Part) -> _RankCalls:
        spent = _in_steps(part)
        numbers, firsts = number_groups(*(spent[key] for key in KEYS))
        cells, cell = number_groups(numbers, spent["step"], spent["rank"])
        count = len(firsts)
        groups, rank, weight = numbers[cell], spent["rank"][cell], spent["rank_count"][cell]
        sums = {name: _sum_by(groups, _sum_by(cells, spent[name], len(cell)) * weight, count) for name in _SUMMED}
        # A step is in one part only, so counts add up.
        steps = number_groups(groups, spent["step"][cell])[1]
        ranks = number_groups(groups, rank)[1]
        return cls(
            names={key: spent[key][firsts] for key in KEYS},
            roles=spent["role"][firsts],
            sums={**sums, "steps": _sum_by(groups[steps], 1, count), "rows": _sum_by(groups, weight, count)},
            groups=groups,
            time_ns=_sum_by(cells, spent["duration_ns"], len(cell)),
            weight=weight,
            ranks=(groups[ranks], rank[ranks], weight[ranks]),
        )


def fold_layers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return `operations` with repeated layers that take about as long as one row, such as "layers.*.norm x 16".

    Times, calls and bytes of such a row are sums over its layers, `RATES` are medians.
    """
    paths = frame.assign(path=frame["label"].str.replace(_LAYER, "*", regex=True))
    layers = paths.groupby(["path", "kind", "stream"], sort=False)["mean_ns"]
    count = layers.transform("size")
    is_folded = ((count > 1) & (layers.transform("max") <= _ALIKE * layers.transform("min"))).to_numpy(bool)
    if not is_folded.any():
        return frame
    keys = [*KEYS, "part"]
    each = frame.assign(label=paths["path"] + " x " + count.astype(str))[is_folded].groupby(keys, sort=False)
    others = dict.fromkeys(["ranks", "steps", "role"], "first") | dict.fromkeys(RATES, "median")
    folded = each.agg({name: others.get(name, "sum") for name in OPERATIONS if name not in keys}).reset_index()
    for share in ("hidden", "wait"):
        folded[f"{share}_share"] = (folded[f"{share}_ns"] / folded["mean_ns"]).fillna(0.0)
    return pd.concat([frame[~is_folded], folded[list(OPERATIONS)]], ignore_index=True)


def layer_times(frame: pd.DataFrame, layers: pd.DataFrame) -> pd.DataFrame:
    """Return `layers` with the time of each row, per rank and step; `frame` is `operations`.

    `name` is a submodule, or repeated layers that take about as long: "layers.* x 16"; `phase` is "forward" or
    "backward". `time_ns` is without `launch_ns`, in which the row's computation waits for launches.
    """
    own = frame.loc[(frame["part"] == "compute").to_numpy(bool), ["label", "mean_ns", "launch_ns"]]
    own = layers.merge(own.groupby("label", sort=False).sum().reset_index(), on="label")
    launch_ns = own["launch_ns"] * own["share"]
    time_ns = own["mean_ns"] * own["share"] - launch_ns
    modules, paths = own["label"].str.replace(_PHASE, "", regex=True), own["layer"]
    if modules.nunique() > 1:
        paths = (modules + "." + paths).str.rstrip(".")
    summed = time_ns.groupby(paths, sort=False).sum()
    names = _name_layers(dict(zip(summed.index.astype(str), summed, strict=True)))
    phase = own["label"].str.extract(_PHASE, expand=False).fillna("")
    columns = {**own, "name": paths.map(names), "phase": phase, "time_ns": time_ns, "launch_ns": launch_ns}
    return frame_of_columns(columns, LAYERS)


def _name_layers(times: Mapping[str, float]) -> dict[str, str]:
    found = {path: _FIRST_LAYER.match(path) for path in times}
    repeated: dict[str, dict[str, float]] = {}
    for path, match in found.items():
        if match:
            own = repeated.setdefault(match[1], {})
            own[match[2]] = own.get(match[2], 0.0) + times[path]
    alike = {
        before: f"{before}* x {len(own)}"
        for before, own in repeated.items()
        if len(own) > 1 and max(own.values()) <= _ALIKE * min(own.values())
    }
    # The outermost level of modules at which there are several.
    inner = [path.split(".") for path in times if "." in path]
    levels = range(1, max(map(len, inner), default=1))
    level = next((at for at in levels if len({tuple(path[:at]) for path in inner}) > 1), 1)
    outer = {path: ".".join(path.split(".")[:level]) or NO_LAYER for path in times}
    return {path: (match and alike.get(match[1])) or outer[path] for path, match in found.items()}


def operations(parts: Iterable[Part]) -> pd.DataFrame:
    """Return one row per kind, label and stream used in a step; times and bytes are those of one rank in one step.

    A rank's calls of one operation in one step are summed first; medians and means are then taken over ranks and steps,
    weighted by `rank_count`. `hidden_ns + exposed_ns == mean_ns`; `wait_ns` is the part of `exposed_ns` in which others
    have not entered, and the rest is transfer. `RATES` are of one call of a collective for which nccl-tests defines
    bandwidths: members, size, time since the last member entered, algbw and busbw; else nan.
    """
    calls = [_RankCalls.of(part) for part in parts]
    names = {key: np.concatenate([one.names[key] for one in calls]) for key in KEYS}
    numbers, firsts = number_groups(*names.values())
    count = len(firsts)
    sums = {name: _sum_by(numbers, np.concatenate([one.sums[name] for one in calls]), count) for name in calls[0].sums}
    places = np.split(numbers, np.cumsum([len(one.roles) for one in calls])[:-1])
    groups = np.concatenate([place[one.groups] for place, one in zip(places, calls, strict=True)])
    times, weight = (np.concatenate([getattr(one, name) for one in calls]) for name in ("time_ns", "weight"))
    longest = np.zeros(count)
    np.maximum.at(longest, groups, times)
    of_ranks = np.concatenate([place[one.ranks[0]] for place, one in zip(places, calls, strict=True)])
    ranks, counts = (np.concatenate([one.ranks[at] for one in calls]) for at in (1, 2))
    once = number_groups(of_ranks, ranks)[1]
    total, hidden, wait, launch = (sums[name] / sums["rows"] for name in _TIMES)
    columns = {
        **{key: names[key][firsts] for key in KEYS},
        "part": np.where(names["kind"][firsts] == COMPUTE, "compute", "communication"),
        "ranks": np.bincount(of_ranks[once], counts[once], count),
        "steps": sums["steps"],
        "calls": sums["calls"],
        "calls_per_step": sums["calls"] / sums["rows"],
        "median_ns": weighted_quantiles(groups, times, weight, count=count, shares=[0.5])[0],
        "mean_ns": total,
        "max_ns": longest,
        **{column: np.where(sums["unstated"] > 0, np.nan, sums[column] / sums["rows"]) for column in _BYTES},
        "hidden_ns": hidden,
        "exposed_ns": total - hidden,
        "wait_ns": wait,
        "launch_ns": launch,
        "hidden_share": np.divide(hidden, total, out=np.zeros(count), where=total > 0),
        "wait_share": np.divide(wait, total, out=np.zeros(count), where=total > 0),
        **_bandwidths(sums),
        "role": np.concatenate([one.roles for one in calls])[firsts],
    }
    return frame_of_columns(columns, OPERATIONS)


def _sum_by(groups: Ints, values: npt.NDArray[Any] | int, count: int) -> Floats:
    """Return the sum of the values of each group."""
    return np.bincount(groups, np.broadcast_to(values, groups.shape), count).astype(np.float64)


def _bandwidths(sums: Mapping[str, Floats]) -> dict[str, Floats]:
    known = (sums["size_bytes"] > 0) & (sums["moving_ns"] > 0)

    def ratio(of: str, over: str) -> Floats:
        return np.asarray(np.divide(sums[of], sums[over], out=np.full(len(known), np.nan), where=known))

    rates = {"algbw_bytes_per_s": "size_bytes", "busbw_bytes_per_s": "bus_bytes"}
    return {
        **{name: ratio(name, "calls") for name in ("members", "size_bytes", "moving_ns")},
        **{name: ratio(of, "moving_ns") * 1e9 for name, of in rates.items()},
    }


def formulas(parts: Iterable[Part]) -> pd.DataFrame:
    """Return one row per kind, label and stream of collectives inside steps for which NCCL has a time formula.

    A simulated call counts once, however many members it has. `median_ns` is the time from the entry of the last member
    to the end, so it contains no straggler wait; `formula_ns` is the median of NCCL's own figures. The number of ranks
    represented weights both medians. `difference` is median over formula - 1.
    """
    calls = pd.concat([_known_calls(part) for part in parts]).reset_index()
    keys = [texts(calls, key) for key in KEYS]
    (groups, firsts), weights = number_groups(*keys), ints(calls, "rank_count")
    medians = {
        name: weighted_quantiles(groups, calls[name].to_numpy(float), weights, count=len(firsts), shares=[0.5])[0]
        for name in ("taken_ns", "formula_ns")
    }
    columns = {
        **{key: column[firsts] for key, column in zip(KEYS, keys, strict=True)},
        "calls": np.bincount(groups, minlength=len(firsts)),
        "median_ns": medians["taken_ns"],
        "formula_ns": medians["formula_ns"],
        "difference": medians["taken_ns"] / medians["formula_ns"] - 1,
    }
    return frame_of_columns(columns, FORMULAS)


def _known_calls(part: Part) -> pd.DataFrame:
    is_member = is_collective(part.spans)
    members = part.spans[is_member]
    last_ns = members.groupby(["group", "call"])["start_ns"].transform("max")
    members = members.assign(taken_ns=members["end_ns"] - last_ns)
    known = members[((members["formula_ns"] > 0) & (members["step"] >= 0)).to_numpy(bool) & part.own[is_member]]
    return known.groupby([*KEYS, "group", "call"], sort=True)[["taken_ns", "formula_ns", "rank_count"]].max()


def _in_steps(part: Part) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the spans in a part's own steps, and what is summed of them."""
    spans, overlaps = part.spans, Overlaps.of(part.spans)
    kept = np.flatnonzero((texts(spans, "kind") != STEP) & (ints(spans, "step") >= 0) & part.own)
    sizes, bus, members = _bus_bytes(spans)
    columns = {
        **{name: texts(spans, name) for name in (*KEYS, "role")},
        **{name: ints(spans, name) for name in ("step", "rank", "rank_count")},
        **{name: ints(spans, name).clip(0) for name in _BYTES},
        "calls": np.ones(len(spans), np.int64),
        "unstated": ints(spans, "bytes_sent") < 0,
        "duration_ns": ints(spans, "end_ns") - ints(spans, "start_ns"),
        "hidden_ns": overlaps.hidden_ns,
        "wait_ns": overlaps.late_ns,
        "launch_ns": ints(spans, "launch_ns"),
        "moving_ns": overlaps.ends - overlaps.ready,
        "size_bytes": sizes,
        "bus_bytes": bus,
        "members": members,
    }
    return {name: column[kept] for name, column in columns.items()}


def _bus_bytes(spans: pd.DataFrame) -> tuple[Floats, Floats, Ints]:
    """Return for each span the size in bytes that algbw and busbw are of, and the number of members of its collective.

    Sizes are 0 where nccl-tests define none, or the collective has one member. Members on one host are counted; in
    other collectives a representative counts as many times as the ranks that it represents.
    """
    sizes, bus = np.zeros(len(spans)), np.zeros(len(spans))
    members, kinds = _members(spans), texts(spans, "kind")
    for kind in pd.unique(kinds):
        own = (kinds == kind) & (members > 1)
        known = TRAITS.get(kind)
        if known is not None and known.size:
            sizes[own] = np.max([ints(spans, name)[own] for name in known.size], axis=0).clip(0)
            bus[own] = sizes[own] * known.bus * (members[own] - 1) / members[own] if known.bus else sizes[own]
    return sizes, bus, members


def _members(spans: pd.DataFrame) -> Ints:
    counts, of_groups = np.zeros(len(spans), np.int64), is_collective(spans)
    calls, firsts = number_groups(*(column[of_groups] for column in call_columns(spans)))
    hosts = ints(spans, "host")[of_groups]
    is_inside = np.bincount(calls, hosts != hosts[firsts][calls]) == 0
    # Inside a host all members are simulated, and represent none but themselves in this call.
    alike = np.where(is_inside, np.bincount(calls), np.bincount(calls, ints(spans, "rank_count")[of_groups]))
    counts[of_groups] = alike.astype(np.int64)[calls]
    return counts
