"""Find stragglers (GPUs and links slower than their peers) and hot spots (those with more work), and their cost.

Spans and links are the only input, so that real runs and predictions are judged by equal rules; the scenario adds how
many hosts share a leaf. Medians are weighted by the ranks or links that a row represents; with an even number the lower
middle value counts, so that of two the slower one is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import COMPUTE, ints
from reports.analysis.intervals import Floats, Ints
from reports.analysis.statistics import weighted_lower_median
from reports.store.columns import TEXT, frame_of_rows
from reports.store.parts import Part

# Columns of the spans that `stragglers` reads.
WORK = ["label", "kernel", "flops", "bytes_read", "bytes_written"]
COLUMNS = ["kind", "step", "rank", "rank_count", "start_ns", "end_ns", "launch_ns", *WORK]

# Equal work on equal GPUs takes equally long in a prediction, and on real GPUs within a few per cent. All ranks scatter
# on a busy machine: an outlier is further off than three median absolute deviations, as is customary.
SLOW_RATIO = 1.1
OUTLYING = 3.0
# Random ids give each rank, and each link, a slightly different load.
HOT_RATIO = 1.2

STRAGGLER, HOT_SPOT = "straggler", "hot spot"
# The least cost, as a share of the step; lower for a straggler, which costs more once nothing else hides it.
LEAST_SHARE = {STRAGGLER: 0.001, HOT_SPOT: 0.01}
_OF_LINK = ["bytes", "median_bytes", "bytes_per_s", "median_bytes_per_s"]
STRAGGLERS = {
    **dict.fromkeys(["kind", "name", "cause", "label"], "str"),
    **dict.fromkeys(["host", "gpu", "rank", "count"], "int"),
    **dict.fromkeys(["ratio", "time_ns", "median_ns", "cost_ns", "step_ns"], "float"),
    **dict.fromkeys(_OF_LINK, "float"),
    "per_host": "bool",
}
_GPU: dict[str, Any] = {"kind": "gpu", "label": "", "per_host": False}
_GPU |= dict.fromkeys(_OF_LINK, np.nan)


@dataclass(frozen=True, kw_only=True)
class Context:
    """The facts about a run that its spans and links do not state.

    Spans are of `steps` steps, links of `run_steps`; `step_ns` is the median step. `own` has the steps' own spans:
    ranks without any are left out. A leaf has `hosts_per_leaf` of the `hosts`, the last leaf the rest; 0 is unknown.
    """

    steps: int
    run_steps: int
    step_ns: float
    own: pd.DataFrame
    hosts: int = 0
    hosts_per_leaf: int = 0

    @cached_property
    def places(self) -> dict[int, tuple[int, int, int]]:
        """Host, index of the GPU in its host, and number of ranks represented, by rank."""
        ranks = self.own.drop_duplicates("rank")
        gpus = ranks["rank"] - ranks.groupby("host")["rank"].transform("min")
        places = zip(ranks["host"].tolist(), gpus.tolist(), ranks["rank_count"].tolist(), strict=True)
        return dict(zip(ranks["rank"].tolist(), places, strict=True))

    @property
    def has_smaller_leaf(self) -> bool:
        """Whether the last leaf has fewer hosts than the others."""
        return 0 < self.hosts_per_leaf < self.hosts and self.hosts % self.hosts_per_leaf > 0


def stragglers(parts: Callable[[], Iterable[Part]], links: pd.DataFrame, context: Context) -> pd.DataFrame:
    """Return a frame of `STRAGGLERS`: stragglers, then hot spots, both by falling cost.

    `time_ns` is per step: a GPU's computations without their waits for launches, or a link's bytes over its rate.
    `median_ns` is the median of its peers, `ratio` their quotient and `cost_ns` their difference, at most the step: an
    upper bound on what a step loses. Bytes are per step: those that computations of `label` touch (hot GPUs), or that a
    link carries; `per_host`: bytes and rates are divided by the hosts of the leaf. Inapplicable fields are nan, "", or
    -1 (the `gpu` and `rank` of a link). Only the worst hot spot of a kind is listed, because some member always has
    most.

    Args:
        parts: yields the spans anew at each call.
        links: the run's links.
        context: what else is known of the run.
    """
    rows: list[dict[str, Any]] = []
    if context.step_ns > 0:
        ranks = ints(context.own, "rank")
        computed = _ComputeTimes.of(parts(), ranks)
        slow = _slow_ranks(computed.by_step)
        if len(slow):  # a second pass takes medians over the other ranks
            computed = _ComputeTimes.of(parts(), ranks, ints(slow.reset_index(), "rank"))
            slow = _slow_ranks(computed.by_step)
        rows = [*_slow_gpus(slow, context), *_hot_rank(computed.by_label, slow, context), *_links(links, context)]
    rows = [row for row in rows if row["cost_ns"] >= LEAST_SHARE[row["cause"]] * context.step_ns]
    rows.sort(key=lambda row: (row["cause"] == HOT_SPOT, -row["cost_ns"]))
    return frame_of_rows(rows, STRAGGLERS)


@dataclass(frozen=True, slots=True)
class _ComputeTimes:
    """Compute times summed over labels (`by_step`, one row per rank and step) and over steps (`by_label`).

    All times are without waits for launches. `median_ns` is the median time of equal work over the ranks that had it in
    that step, without known slow ranks if others had it; `unmatched_ns` is the part of `took_ns`, and of `median_ns`,
    for work of one rank only.
    """

    by_step: pd.DataFrame
    by_label: pd.DataFrame

    @classmethod
    def of(cls, parts: Iterable[Part], ranks: Ints, slow: Ints | None = None) -> _ComputeTimes:
        by_step, by_label = [], []
        columns = {**dict.fromkeys(["took_ns", "median_ns", "unmatched_ns"], "sum"), "rank_count": "first"}
        for part in parts:
            each = _compare_ranks(part, ranks, ranks[:0] if slow is None else slow)
            by_step.append(each.groupby(["rank", "step"], sort=True).agg(columns))
            by_label.append(_by_label(each))
        return cls(pd.concat(by_step), _by_label(pd.concat(by_label)))


def _by_label(each: pd.DataFrame) -> pd.DataFrame:
    columns = {**dict.fromkeys(["median_ns", "unmatched_ns", "bytes"], "sum"), "rank_count": "first"}
    return each.groupby(["rank", "label"], sort=True).agg(columns).reset_index()


def _compare_ranks(part: Part, ranks: Ints, slow: Ints) -> pd.DataFrame:
    """Return one row for all calls of a rank with equal work in a step."""
    spans = part.spans
    kept = ((spans["kind"] == COMPUTE) & (spans["step"] >= 0) & spans["rank"].isin(ranks)).to_numpy(bool) & part.own
    # A rank whose host is late, with a checkpoint for one, has no slower GPU.
    took = (spans["end_ns"] - spans["start_ns"] - spans["launch_ns"]).astype("float64")
    spans = spans.assign(took_ns=took, bytes=spans["bytes_read"] + spans["bytes_written"])[kept]
    spans = spans.assign(work=spans.groupby(["step", *WORK], sort=False).ngroup())
    firsts = dict.fromkeys(["step", "label", "rank_count"], "first")
    grouped = spans.groupby(["work", "rank"], sort=True)
    each = grouped.agg({**firsts, "took_ns": "sum", "bytes": "sum"}).assign(calls=grouped.size()).reset_index()
    groups = np.asarray(each.groupby(["work", "calls"], sort=True).ngroup(), np.int64)
    is_slow = each["rank"].isin(slow).to_numpy(bool)
    had_it, of_them_slow = (np.bincount(groups, weights)[groups] for weights in (None, is_slow))
    is_alone = (had_it == 1) | (had_it == of_them_slow)
    took_ns, weights = each["took_ns"].to_numpy(float), np.where(is_slow & ~is_alone, 0, ints(each, "rank_count"))
    median = np.where(is_alone, took_ns, _medians(groups, took_ns, weights)[groups])
    return each.assign(median_ns=median, unmatched_ns=np.where(is_alone, took_ns, 0.0))


def _slow_ranks(each: pd.DataFrame) -> pd.DataFrame:
    """Return `took_ns` and `median_ns` of ranks whose computations take longer than equal ones elsewhere.

    The median over steps is compared, because any single step may be disturbed.
    """
    compared = {name: each[name] - each["unmatched_ns"] for name in ("took_ns", "median_ns")}
    by_rank = each.assign(**compared).groupby("rank").median()
    by_rank = by_rank[(by_rank["median_ns"] > 0).to_numpy(bool)]
    took, median, weights = by_rank["took_ns"], by_rank["median_ns"], by_rank["rank_count"].to_numpy(np.int64)
    ratios = (took / median).to_numpy(float)
    typical = _median(ratios, weights)
    scatter = _median(np.abs(ratios - typical), weights)
    is_slow = (ratios > SLOW_RATIO * typical) & (ratios > typical + OUTLYING * scatter)
    return pd.DataFrame({"took_ns": took[is_slow], "median_ns": median[is_slow] * typical})


def _slow_gpus(slow: pd.DataFrame, context: Context) -> Iterator[dict[str, Any]]:
    for rank, took_ns, median_ns in slow.itertuples(name=None):
        yield {**_gpu(context, rank), "cause": STRAGGLER, **_cost(took_ns, median_ns, context)}


def _hot_rank(by_label: pd.DataFrame, slow: pd.DataFrame, context: Context) -> Iterator[dict[str, Any]]:
    """Yield the rank whose work takes longest at its peers' speed, if it touches more bytes than the median rank."""
    ratios = (slow["took_ns"] / slow["median_ns"]).reindex(by_label["rank"], fill_value=1.0).to_numpy(float)
    by_label = by_label.assign(median_ns=by_label["median_ns"] - by_label["unmatched_ns"] * (1 - 1 / ratios))
    by_rank = by_label.groupby("rank").agg({"median_ns": "sum", "rank_count": "first"})
    if len(by_rank) < 2:
        return
    time_ns = by_rank["median_ns"].to_numpy(float) / context.steps
    median_ns, rank = _median(time_ns, ints(by_rank, "rank_count")), int(by_rank.index.to_numpy()[time_ns.argmax()])
    label, touched, median = _hot_label(by_label, by_rank["rank_count"], rank)
    if touched > HOT_RATIO * median:
        touches = {"label": label, "bytes": touched / context.steps, "median_bytes": median / context.steps}
        yield {**_gpu(context, rank), "cause": HOT_SPOT, **touches, **_cost(float(time_ns.max()), median_ns, context)}


def _hot_label(by_label: pd.DataFrame, rank_count: pd.Series, rank: int) -> tuple[str, float, float]:
    """Return the label that exceeds the median rank's time most, with its bytes on `rank` and on the median rank."""
    names = pd.Index(by_label.loc[(by_label["rank"] == rank).to_numpy(bool), "label"])
    here = by_label[by_label["label"].isin(names).to_numpy(bool)]
    count = len(rank_count)
    labels, ranks = (
        known.get_indexer(pd.Index(here[name])) for known, name in ((names, "label"), (rank_count.index, "rank"))
    )
    rows, weights = np.repeat(np.arange(len(names)), count), np.tile(rank_count.to_numpy(np.int64), len(names))
    own, median = [], []
    for name in ("median_ns", "bytes"):
        values = np.zeros((len(names), count))
        values[labels, ranks] = here[name]
        own.append(values[:, rank_count.index.get_loc(rank)])
        median.append(_medians(rows, values.ravel(), weights))
    more = own[0] - median[0]
    if not (more > 0).any():
        return "", 0.0, 0.0
    most = int(more.argmax())
    return str(names[most]), float(own[1][most]), float(median[1][most])


def _gpu(context: Context, rank: int) -> dict[str, Any]:
    host, gpu, count = context.places[rank]
    return {**_GPU, "name": f"host{host}.gpu{gpu}", "host": host, "gpu": gpu, "rank": rank, "count": count}


def _links(links: pd.DataFrame, context: Context) -> Iterator[dict[str, Any]]:
    """Yield links that need longer than their peers; a hot link counts only if no link class usually needs longer.

    A slow link is listed with the worse of its two directions, a hot link as the worst of all peers.
    """
    used = _used_links(links, context)
    counts = (used["cause"] == STRAGGLER) | (used["time_ns"] >= used["median_ns"].max())
    used = used[(counts & (used["time_ns"] > HOT_RATIO * used["median_ns"])).to_numpy(bool)]
    used = used.sort_values("time_ns", ascending=False, kind="stable")
    for cause, one in ((STRAGGLER, "owner"), (HOT_SPOT, "peers")):
        found = used[(used["cause"] == cause).to_numpy(bool)].drop_duplicates(one)
        for row in found.to_dict("records"):
            per_host = row["link_class"] == "uplink" and context.has_smaller_leaf
            yield {
                **{str(name): row[name] for name in _OF_LINK},
                **{"kind": row["link_class"], "name": row["link"], "cause": cause, "label": ""},
                **{"host": row["host"], "gpu": -1, "rank": -1, "count": row["link_count"], "per_host": per_host},
                **_cost(row["time_ns"], row["median_ns"], context),
            }


def _used_links(links: pd.DataFrame, context: Context) -> pd.DataFrame:
    """Return the links that carried anything, with their time per step and the medians of their peers.

    Peers have equal names except for numbers, the same direction and, for NVLinks, the same rate: in a mesh some pairs
    have two links. If leaves differ in size, bytes and rates of uplinks are per host.
    """
    used = links[((links["bytes_carried"] > 0) & (links["bytes_per_s"] > 0)).to_numpy(bool)]
    owner = used["link"].str.removesuffix(".out").str.removesuffix(".in")
    peers = owner.str.replace(r"\d+", "#", regex=True)
    rates = used["bytes_per_s"].where(used["link_class"] == "nvlink", 0.0).astype(str).astype(TEXT)
    groups = (peers + used["direction"] + rates).factorize()[0].astype(np.int64)
    hosts, weights = _hosts_of(used, context), ints(used, "link_count")
    rate = used["bytes_per_s"].to_numpy(float) / hosts
    carried = used["bytes_carried"].to_numpy(float) / max(context.run_steps, 1) / hosts
    time_ns = carried / rate * 1e9
    median_ns, median_carried = (_medians(groups, values, weights)[groups] for values in (time_ns, carried))
    median_rate = -_medians(groups, -rate, weights)[groups]
    cause = np.where(median_rate > SLOW_RATIO * rate, STRAGGLER, HOT_SPOT)
    added: dict[str, Any] = {
        **{"owner": owner, "peers": peers, "cause": cause, "time_ns": time_ns, "median_ns": median_ns},
        **dict(zip(_OF_LINK, (carried, median_carried, rate, median_rate), strict=True)),
    }
    return used.assign(**added)


def _hosts_of(links: pd.DataFrame, context: Context) -> Floats:
    """Return [links]: for uplinks the number of hosts on their leaf, where leaves differ in size; else 1."""
    per_leaf = context.hosts_per_leaf
    if not context.has_smaller_leaf:
        return np.ones(len(links))
    first = ints(links, "host") // per_leaf * per_leaf
    hosts = np.minimum(per_leaf, np.maximum(context.hosts - first, 1))
    return np.where((links["link_class"] == "uplink").to_numpy(bool), hosts, 1).astype(np.float64)


def _cost(time_ns: float, median_ns: float, context: Context) -> dict[str, float]:
    return {
        "ratio": time_ns / median_ns if median_ns else np.nan,
        "time_ns": time_ns,
        "median_ns": median_ns,
        "cost_ns": min(time_ns - median_ns, context.step_ns),
        "step_ns": context.step_ns,
    }


def _medians(groups: Ints, values: Floats, weights: Ints) -> Floats:
    """Return the weighted lower median of each group 0, 1, ..."""
    return weighted_lower_median(groups, values, weights, int(groups.max(initial=-1)) + 1)


def _median(values: Floats, weights: Ints) -> float:
    return float(_medians(np.zeros(len(values), np.int64), values, weights)[0]) if len(values) else np.nan
