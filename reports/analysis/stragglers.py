"""What stands out in a run by being slower than its like, or by having more to do: GPUs and links.

From spans and links alone, so that real runs are read as predictions are: what a scenario says of faults is not asked,
only how many hosts a leaf has, as its uplinks are as wide.
Which tables load a rank, by the plan, is left to `imbalance`. Of values with an even number, the lower middle one is
usual here, so that of two the slower one stands out against the other.
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
from reports.store.columns import TEXT, fixed
from reports.store.parts import Part
from reports.terminal import text

# What `culprits` needs of the spans.
WORK = ["label", "kernel", "flops", "bytes_read", "bytes_written"]
COLUMNS = ["kind", "step", "rank", "rank_count", "start_ns", "end_ns", *WORK]

# Equal work on equal GPUs takes equally long in a prediction, and on real ones within a few per cent. Where ranks
# disturb each other, all of them scatter: an outlier is further off than three median deviations, as is customary.
SLOWER_TIMES = 1.1
OUTLYING = 3.0
# Where ids are drawn, no two ranks have quite as many, nor do their links carry as much.
MORE_TIMES = 1.2

SLOWER, MORE = "slower", "more to do"
# What costs less of a step is not worth a look; what is slow is so sooner, as it shows once nothing else hides it.
LEAST_SHARE = {SLOWER: 0.001, MORE: 0.01}
CULPRITS = {
    **dict.fromkeys(["kind", "name", "cause"], "str"),
    **dict.fromkeys(["host", "rank", "count"], "int"),
    **dict.fromkeys(["times", "takes_ns", "usual_ns", "cost_ns"], "float"),
    "sentence": "str",
}
# One of a class of links, in sentences.
_NOUNS = {"nic": "NIC", "uplink": "leaf", "nvlink": "NVLink", "pcie": "PCIe link", "memory": "path through memory"}


@dataclass(frozen=True, kw_only=True)
class About:
    """What is known of the run beside its spans and links.

    Spans are of `steps` steps, links of `run_steps`; a step takes `step_ns`. `own` are the steps' own spans: ranks
    without any are left out. Leafs have `hosts_per_leaf` of the `hosts`, the last one what is left; 0 is unknown.
    """

    steps: int
    run_steps: int
    step_ns: float
    own: pd.DataFrame
    hosts: int = 0
    hosts_per_leaf: int = 0

    @cached_property
    def places(self) -> dict[int, tuple[int, int, int]]:
        """Of each rank: its host, how many ranks are like it, and which GPU of its host it is."""
        ranks = self.own.drop_duplicates("rank")
        gpus = ranks["rank"] - ranks.groupby("host")["rank"].transform("min")
        places = zip(ranks["host"].tolist(), ranks["rank_count"].tolist(), gpus.tolist(), strict=True)
        return dict(zip(ranks["rank"].tolist(), places, strict=True))


def culprits(parts: Callable[[], Iterable[Part]], links: pd.DataFrame, about: About) -> pd.DataFrame:
    """One row each: first what is slower, then what has more to do, in both those that cost most first.

    `takes_ns` is in a step: a GPU's computations, or what a link needs at its rate for its bytes. `usual_ns` is the
    median of its like, `times` their ratio and `cost_ns` their difference, if that is no more than the step: the most
    that a step can lose by it. Of what has more to do only the worst of a kind is there, as one always has most.
    `count` behave like this one. Each call of `parts` gives the spans anew.
    """
    rows: list[dict[str, Any]] = []
    if about.step_ns > 0:
        ranks = ints(about.own, "rank")
        computed = _Computed.of(parts(), ranks)
        slow = _slow_ranks(computed.by_step)
        if len(slow):  # which say nothing of what is usual
            computed = _Computed.of(parts(), ranks, ints(slow.reset_index(), "rank"))
            slow = _slow_ranks(computed.by_step)
        rows = [*_slow_gpus(slow, about), *_loaded_rank(computed.by_label, slow, about), *_links(links, about)]
    rows = [row for row in rows if row["cost_ns"] >= LEAST_SHARE[row["cause"]] * about.step_ns]
    rows.sort(key=lambda row: (row["cause"] == MORE, -row["cost_ns"]))
    return fixed({name: [row[name] for row in rows] for name in CULPRITS}, CULPRITS)


@dataclass(frozen=True, slots=True)
class _Computed:
    """What ranks computed, added up over labels (`by_step`, of each rank and step) and over steps (`by_label`).

    `usual_ns` is what equal work usually takes on the ranks that had it in that step, less those known to be `slow`
    where there are others; `alone_ns` is the part of `took_ns`, and of `usual_ns`, for work that no others had.
    """

    by_step: pd.DataFrame
    by_label: pd.DataFrame

    @classmethod
    def of(cls, parts: Iterable[Part], ranks: Ints, slow: Ints | None = None) -> _Computed:
        by_step, by_label = [], []
        columns = {**dict.fromkeys(["took_ns", "usual_ns", "alone_ns"], "sum"), "rank_count": "first"}
        for part in parts:
            each = _compared(part, ranks, ranks[:0] if slow is None else slow)
            by_step.append(each.groupby(["rank", "step"], sort=True).agg(columns))
            by_label.append(_by_label(each))
        return cls(pd.concat(by_step), _by_label(pd.concat(by_label)))


def _by_label(each: pd.DataFrame) -> pd.DataFrame:
    columns = {**dict.fromkeys(["usual_ns", "alone_ns", "bytes"], "sum"), "rank_count": "first"}
    return each.groupby(["rank", "label"], sort=True).agg(columns).reset_index()


def _compared(part: Part, ranks: Ints, slow: Ints) -> pd.DataFrame:
    """One row for all calls of a rank with equal work in a step."""
    spans = part.spans
    kept = ((spans["kind"] == COMPUTE) & (spans["step"] >= 0) & spans["rank"].isin(ranks)).to_numpy(bool) & part.own
    took = (spans["end_ns"] - spans["start_ns"]).astype("float64")
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
    usual = np.where(is_alone, took_ns, _usual(groups, took_ns, weights)[groups])
    return each.assign(usual_ns=usual, alone_ns=np.where(is_alone, took_ns, 0.0))


def _slow_ranks(each: pd.DataFrame) -> pd.DataFrame:
    """`took_ns` and `usual_ns`, by rank, where the same computations take longer than elsewhere.

    In the median step: in one, anything can happen.
    """
    compared = {name: each[name] - each["alone_ns"] for name in ("took_ns", "usual_ns")}
    by_rank = each.assign(**compared).groupby("rank").median()
    by_rank = by_rank[(by_rank["usual_ns"] > 0).to_numpy(bool)]
    takes, usual, weights = by_rank["took_ns"], by_rank["usual_ns"], by_rank["rank_count"].to_numpy(np.int64)
    times = (takes / usual).to_numpy(float)
    typical = _usual_of(times, weights)
    scatter = _usual_of(np.abs(times - typical), weights)
    is_slow = (times > SLOWER_TIMES * typical) & (times > typical + OUTLYING * scatter)
    return pd.DataFrame({"took_ns": takes[is_slow], "usual_ns": usual[is_slow] * typical})


def _slow_gpus(slow: pd.DataFrame, about: About) -> Iterator[dict[str, Any]]:
    for rank, took, usually in slow.itertuples(name=None):
        words = f"its computations take {took / usually:.1f} times as long as the same ones elsewhere"
        cost = f"{_of_step(took - usually, about)} of a step's {text.duration(about.step_ns)}"
        yield _gpu(about, rank, SLOWER, (took, usually), f"{words}; {cost}")


def _loaded_rank(by_label: pd.DataFrame, slow: pd.DataFrame, about: About) -> Iterator[dict[str, Any]]:
    """The rank whose work takes most, at the speed of its like, against the median rank's."""
    times = (slow["took_ns"] / slow["usual_ns"]).reindex(by_label["rank"], fill_value=1.0).to_numpy(float)
    by_label = by_label.assign(usual_ns=by_label["usual_ns"] - by_label["alone_ns"] * (1 - 1 / times))
    by_rank = by_label.groupby("rank").agg({"usual_ns": "sum", "rank_count": "first"})
    if len(by_rank) < 2:
        return
    takes = by_rank["usual_ns"].to_numpy(float) / about.steps
    usual, rank = _usual_of(takes, ints(by_rank, "rank_count")), int(by_rank.index.to_numpy()[takes.argmax()])
    label, touched, median = _most_more(by_label, by_rank["rank_count"], rank)
    if touched > MORE_TIMES * median:
        bytes_of = f"{text.size(touched / about.steps)} a step, none"
        if median:
            bytes_of = f"{touched / median:.1f} times as many bytes as"
        more = f"{_of_step(takes.max() - usual, about)} longer than the median rank, of a step's"
        words = f"{label} touches {bytes_of} on the median rank; it computes {more} {text.duration(about.step_ns)}"
        yield _gpu(about, rank, MORE, (float(takes.max()), usual), words)


def _most_more(by_label: pd.DataFrame, rank_count: pd.Series, rank: int) -> tuple[str, float, float]:
    """The label that takes most above the median rank's time, with the bytes that it touches here and there."""
    names = pd.Index(by_label.loc[(by_label["rank"] == rank).to_numpy(bool), "label"])
    here = by_label[by_label["label"].isin(names).to_numpy(bool)]
    count = len(rank_count)
    labels, ranks = (
        known.get_indexer(pd.Index(here[name])) for known, name in ((names, "label"), (rank_count.index, "rank"))
    )
    rows, weights = np.repeat(np.arange(len(names)), count), np.tile(rank_count.to_numpy(np.int64), len(names))
    own, usual = [], []
    for name in ("usual_ns", "bytes"):
        values = np.zeros((len(names), count))
        values[labels, ranks] = here[name]
        own.append(values[:, rank_count.index.get_loc(rank)])
        usual.append(_usual(rows, values.ravel(), weights))
    more = own[0] - usual[0]
    if not (more > 0).any():
        return "", 0.0, 0.0
    most = int(more.argmax())
    return str(names[most]), float(own[1][most]), float(usual[1][most])


def _gpu(about: About, rank: int, cause: str, times: tuple[float, float], words: str) -> dict[str, Any]:
    host, count, gpu = about.places[rank]
    name = f"GPU {gpu} of host {host} ({text.alike(f'rank {rank}', count)})"
    return {
        **{"kind": "gpu", "name": name, "cause": cause, "host": host, "rank": rank, "count": count},
        **_measured(*times, about),
        "sentence": f"{name}: {words}",
    }


def _links(links: pd.DataFrame, about: About) -> Iterator[dict[str, Any]]:
    """Those that need longer than their like; of those that have more to do, none that needs less than is usual with
    some other kind of link.

    Of the two directions of one link, and of all of a kind that have more to do, the worst alone.
    """
    used = _used_links(links, about)
    counts = (used["cause"] == SLOWER) | (used["takes_ns"] >= used["usual_ns"].max())
    used = used[(counts & (used["takes_ns"] > MORE_TIMES * used["usual_ns"])).to_numpy(bool)]
    used = used.sort_values("takes_ns", ascending=False, kind="stable")
    for cause, one in ((SLOWER, "owner"), (MORE, "alike")):
        found = used[(used["cause"] == cause).to_numpy(bool)].drop_duplicates(one)
        for row in found.to_dict("records"):
            yield _link(row, about)


def _used_links(links: pd.DataFrame, about: About) -> pd.DataFrame:
    """With what each needs in a step, and what is usual for those of the same name but for the numbers in it.

    NVLinks are alike if they have the same rate, too: in a mesh some pairs have two. Of leafs that are not of one size,
    `rate` and `carried` are for each host.
    """
    used = links[((links["bytes_carried"] > 0) & (links["bytes_per_s"] > 0)).to_numpy(bool)]
    owner = used["link"].str.removesuffix(".out").str.removesuffix(".in")
    alike = owner.str.replace(r"\d+", "#", regex=True)
    rates = used["bytes_per_s"].where(used["link_class"] == "nvlink", 0.0).astype(str).astype(TEXT)
    groups = (alike + used["direction"] + rates).factorize()[0].astype(np.int64)
    hosts, weights = _hosts_of(used, about), ints(used, "link_count")
    rate = used["bytes_per_s"].to_numpy(float) / hosts
    carried = used["bytes_carried"].to_numpy(float) / max(about.run_steps, 1) / hosts
    takes = carried / rate * 1e9
    usual, usual_carried = (_usual(groups, values, weights)[groups] for values in (takes, carried))
    usual_rate = -_usual(groups, -rate, weights)[groups]
    cause = np.where(usual_rate > SLOWER_TIMES * rate, SLOWER, MORE)
    added: dict[str, Any] = {
        **{"owner": owner, "alike": alike, "cause": cause, "takes_ns": takes, "usual_ns": usual},
        **{"carried": carried, "usual_carried": usual_carried, "rate": rate, "usual_rate": usual_rate},
    }
    return used.assign(**added)


def _hosts_of(links: pd.DataFrame, about: About) -> Floats:
    """How many hosts are on the leafs of uplinks, where these are not of one size; else 1."""
    per_leaf = about.hosts_per_leaf
    if not _has_smaller_leaf(about):
        return np.ones(len(links))
    first = ints(links, "host") // per_leaf * per_leaf
    hosts = np.minimum(per_leaf, np.maximum(about.hosts - first, 1))
    return np.where((links["link_class"] == "uplink").to_numpy(bool), hosts, 1).astype(np.float64)


def _has_smaller_leaf(about: About) -> bool:
    return 0 < about.hosts_per_leaf < about.hosts and about.hosts % about.hosts_per_leaf > 0


def _link(row: dict[str, Any], about: About) -> dict[str, Any]:
    name, noun = text.alike(row["link"], row["link_count"]), _NOUNS.get(row["link_class"], row["link_class"])
    each = " for each host" if row["link_class"] == "uplink" and _has_smaller_leaf(about) else ""
    if row["cause"] == SLOWER:
        words = f"{text.rate(row['rate'])}{each} where the median {noun} has {text.rate(row['usual_rate'])}"
    else:
        carried, usual = text.size(row["carried"]), text.size(row["usual_carried"])
        words = f"carries {carried} a step{each}, the median {noun} {usual}"
    takes, usual, step = (_of_step(ns, about) for ns in (row["takes_ns"], row["usual_ns"], about.step_ns))
    needs = f"needs {takes} of a step's {step}, the median {noun} {usual}"
    return {
        **{"kind": row["link_class"], "name": row["link"], "cause": row["cause"]},
        **{"host": row["host"], "rank": -1, "count": row["link_count"]},
        **_measured(row["takes_ns"], row["usual_ns"], about),
        "sentence": f"{name}: {words}; {needs}",
    }


def _of_step(ns: float, about: About) -> str:
    """Computations at the same time add up to more than the step."""
    return text.duration(min(ns, about.step_ns))


def _measured(takes: float, usual: float, about: About) -> dict[str, float]:
    return {
        "times": takes / usual if usual else np.nan,
        "takes_ns": takes,
        "usual_ns": usual,
        "cost_ns": min(takes - usual, about.step_ns),
    }


def _usual(groups: Ints, values: Floats, weights: Ints) -> Floats:
    """Of each group 0, 1, ..."""
    return weighted_lower_median(groups, values, weights, int(groups.max(initial=-1)) + 1)


def _usual_of(values: Floats, weights: Ints) -> float:
    return float(_usual(np.zeros(len(values), np.int64), values, weights)[0]) if len(values) else np.nan
