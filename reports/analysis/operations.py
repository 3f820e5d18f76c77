"""Compute operations' time, bytes, bandwidth and hidden communication; compare NCCL's formula with the link model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, KEYS, STEP, Overlaps, ints, is_collective, number_groups
from reports.analysis.intervals import Floats, Ints
from reports.analysis.statistics import weighted_quantiles
from reports.store.columns import frame_of_columns
from reports.store.parts import Part
from scenarios.seam.traits import TRAITS

_BYTES = ["bytes_in", "bytes_out", "bytes_sent"]
_TIMES = ["duration_ns", "hidden_ns", "wait_ns"]
_MOVED = ["moving_ns", "size_bytes", "bus_bytes", "members"]
OPERATION_COLUMNS = [*KEYS, "kernel", "step", "rank", "host", "rank_count", "start_ns", "end_ns", *_BYTES]
OPERATION_COLUMNS += ["group", "call", "role"]
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
    **dict.fromkeys([*_BYTES, "hidden_ns", "exposed_ns", "wait_ns", "hidden_share", "wait_share"], "float"),
    **dict.fromkeys(RATES, "float"),
    "role": "str",
}
# A layer's number in the path of a module, and how much longer than the shortest repeated layers may take as one row.
_LAYER, _ALIKE = r"(?<=\.)\d+(?=\.|$)", 1.25
FORMULAS = {
    **dict.fromkeys(KEYS, "str"),
    "calls": "int",
    **dict.fromkeys(["median_ns", "formula_ns", "difference"], "float"),
}


@dataclass(frozen=True, slots=True)
class _RankCalls:
    """A part's calls, summed by operation, rank and step: their time, and the number of ranks that a rank represents.

    `groups` are rows of `sums`, which has one row per operation with the sums over all its calls.
    """

    groups: Ints
    time_ns: Floats
    weight: Ints
    sums: pd.DataFrame
    ranks: pd.DataFrame

    @classmethod
    def of(cls, part: Part) -> _RankCalls:
        of_steps = _in_steps(part)
        numbers, names = number_groups(of_steps, KEYS)
        each = _per_rank_and_step(of_steps.assign(operation=numbers))
        groups, weight, count = ints(each, "operation"), ints(each, "rank_count"), len(names)
        added = ["calls", "unstated", *_TIMES, *_BYTES, *_MOVED]
        sums = {name: np.bincount(groups, each[name].to_numpy(float) * weight, count) for name in added}
        steps = each.groupby("operation")["step"].nunique().to_numpy()  # a step is in one part only, so counts add up
        roles = of_steps.groupby(numbers, sort=True)["role"].first().to_numpy(object)
        ranks = each[["operation", "rank", "rank_count"]].drop_duplicates(["operation", "rank"])
        of_ranks = names.iloc[ranks["operation"]].set_axis(ranks.index)
        return cls(
            groups=groups,
            time_ns=each["duration_ns"].to_numpy(float),
            weight=weight,
            sums=names.assign(**sums, role=roles, steps=steps, rows=np.bincount(groups, weight, count)),
            ranks=of_ranks.assign(rank=ranks["rank"], rank_count=ranks["rank_count"]),
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


def operations(parts: Iterable[Part]) -> pd.DataFrame:
    """Return one row per kind, label and stream used in a step; times and bytes are those of one rank in one step.

    A rank's calls of one operation in one step are summed first; medians and means are then taken over ranks and steps,
    weighted by `rank_count`. `hidden_ns + exposed_ns == mean_ns`; `wait_ns` is the part of `exposed_ns` in which others
    have not entered, and the rest is transfer. `RATES` are of one call of a collective for which nccl-tests defines
    bandwidths: members, size, time since the last member entered, algbw and busbw; else nan.
    """
    calls = [_RankCalls.of(part) for part in parts]
    each = pd.concat([one.sums for one in calls])
    sums = each.drop(columns="role").groupby(KEYS, sort=True).sum()
    names, count, rows = sums.index.to_frame(index=False), len(sums), sums["rows"].to_numpy(float)
    places = [sums.index.get_indexer(pd.MultiIndex.from_frame(one.sums[KEYS])) for one in calls]
    groups = np.concatenate([place[one.groups] for place, one in zip(places, calls, strict=True)]).astype(np.int64)
    times = np.concatenate([one.time_ns for one in calls])
    weight = np.concatenate([one.weight for one in calls])
    longest = np.zeros(count)
    np.maximum.at(longest, groups, times)
    ranks = pd.concat([one.ranks for one in calls]).drop_duplicates([*KEYS, "rank"]).groupby(KEYS, sort=True)
    total, hidden, wait = (sums[name].to_numpy(float) / rows for name in _TIMES)
    columns = {
        **{key: names[key] for key in KEYS},
        "part": np.where((names["kind"] == COMPUTE).to_numpy(bool), "compute", "communication"),
        "ranks": ranks["rank_count"].sum(),
        "steps": sums["steps"],
        "calls": sums["calls"],
        "calls_per_step": sums["calls"].to_numpy(float) / rows,
        "median_ns": weighted_quantiles(groups, times, weight, count=count, shares=[0.5])[0],
        "mean_ns": total,
        "max_ns": longest,
        **{column: np.where(sums["unstated"] > 0, np.nan, sums[column].to_numpy(float) / rows) for column in _BYTES},
        "hidden_ns": hidden,
        "exposed_ns": total - hidden,
        "wait_ns": wait,
        "hidden_share": np.divide(hidden, total, out=np.zeros(count), where=total > 0),
        "wait_share": np.divide(wait, total, out=np.zeros(count), where=total > 0),
        **_bandwidths(sums),
        "role": each.groupby(KEYS, sort=True)["role"].first(),
    }
    return frame_of_columns(columns, OPERATIONS)


def _bandwidths(sums: pd.DataFrame) -> dict[str, Floats]:
    moved = sums[[*_MOVED, "calls"]].astype(float).where(sums["size_bytes"] > 0)
    moved = moved.where(moved["moving_ns"] > 0)
    each = {name: (moved[name] / moved["calls"]).to_numpy(float) for name in ("members", "size_bytes", "moving_ns")}
    rates = {"algbw_bytes_per_s": "size_bytes", "busbw_bytes_per_s": "bus_bytes"}
    return each | {name: (moved[of] / moved["moving_ns"] * 1e9).to_numpy(float) for name, of in rates.items()}


def formulas(parts: Iterable[Part]) -> pd.DataFrame:
    """Return one row per kind, label and stream of collectives inside steps for which NCCL has a time formula.

    A simulated call counts once, however many members it has. `median_ns` is the time from the entry of the last member
    to the end, so it contains no straggler wait; `formula_ns` is the median of NCCL's own figures. The number of ranks
    represented weights both medians. `difference` is median over formula - 1.
    """
    calls = pd.concat([_known_calls(part) for part in parts]).reset_index()
    groups, names = number_groups(calls, KEYS)
    weights = ints(calls, "rank_count")
    medians = {
        name: weighted_quantiles(groups, calls[name].to_numpy(float), weights, count=len(names), shares=[0.5])[0]
        for name in ("taken_ns", "formula_ns")
    }
    columns = {
        **{key: names[key] for key in KEYS},
        "calls": np.bincount(groups, minlength=len(names)),
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


def _in_steps(part: Part) -> pd.DataFrame:
    spans = part.spans
    kept = ((spans["kind"] != STEP) & (spans["step"] >= 0)).to_numpy(bool) & part.own
    columns = [*KEYS, "role", "step", "rank", "rank_count", *_BYTES]
    duration, overlaps = spans["end_ns"] - spans["start_ns"], Overlaps.of(spans)
    spent = spans[columns].assign(calls=1, duration_ns=duration, hidden_ns=overlaps.hidden_ns, wait_ns=overlaps.late_ns)
    sizes, bus, members = _bus_bytes(spans)
    spent = spent.assign(moving_ns=overlaps.ends - overlaps.ready, size_bytes=sizes, bus_bytes=bus, members=members)
    spent = spent.assign(unstated=spans["bytes_sent"] < 0, **{name: spans[name].clip(lower=0) for name in _BYTES})
    return spent[kept]


def _per_rank_and_step(of_steps: pd.DataFrame) -> pd.DataFrame:
    sums = dict.fromkeys(["calls", "unstated", *_TIMES, *_BYTES, *_MOVED], "sum")
    grouped = of_steps.groupby(["operation", "step", "rank"], sort=True)
    return grouped.agg({**sums, "rank_count": "first"}).reset_index()


def _bus_bytes(spans: pd.DataFrame) -> tuple[Floats, Floats, Ints]:
    """Return for each span the size in bytes that algbw and busbw are of, and the number of members of its collective.

    Sizes are 0 where nccl-tests define none, or the collective has one member. Members on one host are counted; in
    other collectives a representative counts as many times as the ranks that it represents.
    """
    sizes, bus = np.zeros(len(spans)), np.zeros(len(spans))
    members = _members(spans)
    for kind in spans["kind"].unique():
        own = (spans["kind"] == kind).to_numpy(bool) & (members > 1)
        known = TRAITS.get(kind)
        if known is not None and known.size:
            sizes[own] = np.max([ints(spans, name)[own] for name in known.size], axis=0).clip(0)
            bus[own] = sizes[own] * known.bus * (members[own] - 1) / members[own] if known.bus else sizes[own]
    return sizes, bus, members


def _members(spans: pd.DataFrame) -> Ints:
    counts, of_groups = np.zeros(len(spans), np.int64), is_collective(spans)
    own = spans[of_groups]
    calls = np.asarray(own.groupby(["group", "call", "step"], sort=True).ngroup(), np.int64)
    hosts, firsts = ints(own, "host"), np.unique(calls, return_index=True)[1]
    is_inside = np.bincount(calls, hosts != hosts[firsts][calls]) == 0
    # Inside a host all members are simulated, and represent none but themselves in this call.
    alike = np.where(is_inside, np.bincount(calls), np.bincount(calls, ints(own, "rank_count")))
    counts[of_groups] = alike.astype(np.int64)[calls]
    return counts
