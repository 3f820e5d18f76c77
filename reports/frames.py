"""What one run's spans, links and memory say, as frames: operations, steps, ranks, links, memory, metrics.

Pure functions of frames. What the step waited for is left to `critical_path`, the plan's balance to `imbalance`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from reports.columns import fixed
from reports.intervals import Axis, Floats, Ints, union, weighted_median

COMPUTE = "compute"
STEP = "step"
KEYS = ["kind", "label", "stream"]
_BYTES = ["bytes_in", "bytes_out", "bytes_sent"]

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
    **dict.fromkeys([*_BYTES, "hidden_ns", "exposed_ns", "hidden_share"], "float"),
}
STEPS = {
    **dict.fromkeys(["step", "phase", "ranks", "start_ns", "end_ns", "step_ns"], "int"),
    **dict.fromkeys(["fastest_rank_ns", "slowest_rank_ns", "first_rank", "last_rank"], "int"),
    "samples_per_s": "float",
    "complete": "bool",
}
RANKS = {
    **dict.fromkeys(["rank", "host", "rank_count", "steps", "step_ns", "compute_ns", "communication_ns"], "int"),
    **dict.fromkeys(["hidden_ns", "exposed_ns", "idle_ns", "bytes_sent"], "int"),
    "compute_over_mean": "float",
}
LINK_CLASSES = {
    "link_class": "str",
    "links": "int",
    **dict.fromkeys(["bytes_carried", "mean_utilisation", "peak_utilisation"], "float"),
    "hottest_link": "str",
    "hottest_direction": "str",
}
RANK_MEMORY = {
    **dict.fromkeys(["rank", "used_bytes", "capacity_bytes", "free_bytes"], "int"),
    "used_share": "float",
}
METRICS_BY_STEP = {
    "step": "int",
    "name": "str",
    "ranks": "int",
    **dict.fromkeys(["mean", "min", "max"], "float"),
}


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """One column as int64."""
    return frame[column].to_numpy(np.int64)


def hidden_ns(spans: pd.DataFrame) -> Ints:
    """For each span, the part of it in which the same rank computed, on any stream; 0 for compute and step spans."""
    kind = spans["kind"]
    compute = (kind == COMPUTE).to_numpy(bool)
    communication = ~compute & (kind != STEP).to_numpy(bool)
    axis = _axis(spans)
    starts, ends = _placed(axis, spans)
    busy = union(starts[compute], ends[compute])
    return np.where(communication, busy.covered(starts, ends), 0).astype(np.int64)


def operations(spans: pd.DataFrame) -> pd.DataFrame:
    """One row for each kind, label and stream that a step used; times and bytes are those of one rank in one step.

    A rank's calls of one operation in one step are added up first; medians and means are then taken over ranks and
    steps, a rank that stands for `rank_count` others counting as often. `hidden_ns + exposed_ns == mean_ns`.
    """
    of_steps = _in_steps(spans)
    each = _per_rank_and_step(of_steps)
    groups, names = _numbered(each, KEYS)
    count, weight = len(names), ints(each, "rank_count")
    times = each["duration_ns"].to_numpy(float)
    rows = np.bincount(groups, weight, count)

    def mean(column: str) -> Floats:
        return np.bincount(groups, each[column].to_numpy(float) * weight, count) / rows

    total = mean("duration_ns")
    longest = np.zeros(count)
    np.maximum.at(longest, groups, times)
    steps_used = each.groupby(groups)["step"].nunique().to_numpy()
    firsts = each.assign(group=groups).drop_duplicates(["group", "rank"])
    calls = np.bincount(groups, ints(each, "calls") * weight, count)
    columns = {
        **{key: names[key] for key in KEYS},
        "part": np.where((names["kind"] == COMPUTE).to_numpy(bool), "compute", "communication"),
        "ranks": np.bincount(ints(firsts, "group"), ints(firsts, "rank_count"), count),
        "steps": steps_used,
        "calls": calls,
        "calls_per_step": calls / rows,
        "median_ns": weighted_median(groups, times, weight, count),
        "mean_ns": total,
        "max_ns": longest,
        **{column: mean(column) for column in _BYTES},
        "hidden_ns": mean("hidden_ns"),
        "exposed_ns": total - mean("hidden_ns"),
        "hidden_share": np.divide(mean("hidden_ns"), total, out=np.zeros(count), where=total > 0),
    }
    return fixed(columns, OPERATIONS)


def steps(spans: pd.DataFrame, world_size: int, batch_size: int | None = None) -> pd.DataFrame:
    """One row a step: from the start of its first rank to the end of its last.

    `phase` counts from 0 and grows where a step uses other operations than the step before it (vanilla steps before
    compressed ones). `batch_size` is one rank's; without it `samples_per_s` is nan. `complete`: every rank ended it.
    """
    own = spans[(spans["kind"] == STEP) & (spans["step"] >= 0)]
    own = own.assign(rank_ns=own["end_ns"] - own["start_ns"])
    by_step = own.groupby("step", sort=True)
    start, end = by_step["start_ns"].min(), by_step["end_ns"].max()
    firsts = own.sort_values(["step", "start_ns", "rank"]).drop_duplicates("step")
    lasts = own.sort_values(["step", "end_ns", "rank"], ascending=[True, False, True]).drop_duplicates("step")
    took, ranks = (end - start).to_numpy(), by_step["rank_count"].sum().to_numpy()
    samples = np.nan if batch_size is None else float(batch_size) * world_size * 1e9
    numbers = start.index.to_numpy()
    columns = {
        "step": numbers,
        "phase": _phases(spans, numbers),
        "ranks": ranks,
        "start_ns": start,
        "end_ns": end,
        "step_ns": took,
        "fastest_rank_ns": by_step["rank_ns"].min(),
        "slowest_rank_ns": by_step["rank_ns"].max(),
        "first_rank": firsts["rank"],
        "last_rank": lasts["rank"],
        "samples_per_s": np.divide(samples, took, out=np.full(len(took), np.nan), where=took > 0),
        "complete": ranks >= world_size,
    }
    return fixed(columns, STEPS)


def ranks(spans: pd.DataFrame) -> pd.DataFrame:
    """One row a rank: how it spent its steps, all of them together.

    `compute_ns + communication_ns - hidden_ns + idle_ns == step_ns`, whatever overlaps on whichever streams.
    `compute_over_mean` is its compute time over the mean of all ranks.
    """
    kind = spans["kind"]
    compute = (kind == COMPUTE).to_numpy(bool)
    communication = ~compute & (kind != STEP).to_numpy(bool)
    axis = _axis(spans)
    starts, ends = _placed(axis, spans)
    window = (kind == STEP).to_numpy(bool) & (ints(spans, "step") >= 0)
    own = spans.loc[window, ["rank", "host", "rank_count"]]

    def inside(kept: np.ndarray) -> Ints:
        return union(starts[kept], ends[kept]).covered(starts[window], ends[window])

    computing, communicating, busy = inside(compute), inside(communication), inside(compute | communication)
    own = own.assign(
        steps=1,
        step_ns=(ends - starts)[window],
        compute_ns=computing,
        communication_ns=communicating,
        hidden_ns=computing + communicating - busy,
        exposed_ns=busy - computing,
        idle_ns=(ends - starts)[window] - busy,
    )
    summed = own.groupby(["rank", "host", "rank_count"], sort=True).sum().reset_index()
    sent = spans[communication].groupby("rank")["bytes_sent"].sum()
    mean = np.average(summed["compute_ns"], weights=summed["rank_count"]) if len(summed) else 0.0
    ratio = summed["compute_ns"].to_numpy(float) / mean if mean else np.ones(len(summed))
    bytes_sent = summed["rank"].map(sent).fillna(0)
    return fixed(
        {**{str(name): summed[name] for name in summed}, "bytes_sent": bytes_sent, "compute_over_mean": ratio}, RANKS
    )


def elapsed_ns(spans: pd.DataFrame) -> int:
    """From the start of the run's first span to the end of its last."""
    return int(spans["end_ns"].max() - spans["start_ns"].min()) if len(spans) else 0


def links(link_rows: pd.DataFrame, elapsed: int) -> pd.DataFrame:
    """The link rows with `utilisation` (carried over what it could carry in `elapsed` ns), `busy_share` and
    `busy_utilisation` (the same over the time in which it carried anything), the hottest first.
    """
    could = link_rows["bytes_per_s"].to_numpy(float) * elapsed / 1e9
    could_busy = link_rows["bytes_per_s"].to_numpy(float) * link_rows["busy_ns"].to_numpy(float) / 1e9
    carried = link_rows["bytes_carried"].to_numpy(float)
    zeros = np.zeros(len(link_rows))
    frame = link_rows.assign(
        utilisation=np.divide(carried, could, out=zeros.copy(), where=could > 0),
        busy_share=link_rows["busy_ns"].to_numpy(float) / elapsed if elapsed else zeros,
        busy_utilisation=np.divide(carried, could_busy, out=zeros.copy(), where=could_busy > 0),
    )
    return frame.sort_values(["utilisation", "link", "direction"], ascending=[False, True, True], ignore_index=True)


def link_classes(links_frame: pd.DataFrame) -> pd.DataFrame:
    """One row a link class, the busiest first; `peak_utilisation` is its hottest link's."""
    by_class = links_frame.groupby("link_class", sort=True)
    hottest = links_frame.drop_duplicates("link_class").sort_values("link_class")  # `links` comes hottest first
    columns = {
        "link_class": hottest["link_class"],
        "links": by_class.size(),
        "bytes_carried": by_class["bytes_carried"].sum(),
        "mean_utilisation": by_class["utilisation"].mean(),
        "peak_utilisation": by_class["utilisation"].max(),
        "hottest_link": hottest["link"],
        "hottest_direction": hottest["direction"],
    }
    frame = fixed(columns, LINK_CLASSES)
    return frame.sort_values(["peak_utilisation", "link_class"], ascending=[False, True], ignore_index=True)


def rank_memory(memory: pd.DataFrame) -> pd.DataFrame:
    """One row a rank: its parts together against its capacity; the fullest first."""
    by_rank = memory.groupby("rank", sort=True)
    used, capacity = by_rank["size_bytes"].sum(), by_rank["capacity_bytes"].max()
    share = np.divide(used, capacity, out=np.zeros(len(used)), where=(capacity > 0).to_numpy(bool))
    columns = {
        "rank": used.index,
        "used_bytes": used,
        "capacity_bytes": capacity,
        "free_bytes": capacity - used,
        "used_share": share,
    }
    return fixed(columns, RANK_MEMORY).sort_values(["used_share", "rank"], ascending=[False, True], ignore_index=True)


def metrics_by_step(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row for each recorded name and step: over how many ranks, their mean, least and greatest."""
    grouped = metrics.groupby(["name", "step"], sort=True)["value"]
    index = grouped.size().index
    columns = {
        "step": index.get_level_values("step"),
        "name": index.get_level_values("name"),
        "ranks": grouped.size(),
        "mean": grouped.mean(),
        "min": grouped.min(),
        "max": grouped.max(),
    }
    return fixed(columns, METRICS_BY_STEP)


def _axis(spans: pd.DataFrame) -> Axis:
    return Axis.of(ints(spans, "rank"), ints(spans, "start_ns"), ints(spans, "end_ns"))


def _placed(axis: Axis, spans: pd.DataFrame) -> tuple[Ints, Ints]:
    ranks = ints(spans, "rank")
    return axis.place(ranks, ints(spans, "start_ns")), axis.place(ranks, ints(spans, "end_ns"))


def _in_steps(spans: pd.DataFrame) -> pd.DataFrame:
    kept = ((spans["kind"] != STEP) & (spans["step"] >= 0)).to_numpy(bool)
    columns = [*KEYS, "step", "rank", "rank_count", *_BYTES]
    duration = spans["end_ns"] - spans["start_ns"]
    return spans[columns].assign(calls=1, duration_ns=duration, hidden_ns=hidden_ns(spans))[kept]


def _per_rank_and_step(of_steps: pd.DataFrame) -> pd.DataFrame:
    sums = dict.fromkeys(["calls", "duration_ns", "hidden_ns", *_BYTES], "sum")
    grouped = of_steps.groupby([*KEYS, "step", "rank"], sort=True)
    return grouped.agg({**sums, "rank_count": "first"}).reset_index()


def _numbered(frame: pd.DataFrame, keys: list[str]) -> tuple[Ints, pd.DataFrame]:
    grouped = frame.groupby(keys, sort=True)
    names = grouped.size().reset_index()[keys]
    return np.asarray(grouped.ngroup(), np.int64), names


def _phases(spans: pd.DataFrame, numbers: Ints) -> Ints:
    used = spans.loc[((spans["kind"] != STEP) & (spans["step"] >= 0)).to_numpy(bool), [*KEYS, "step"]]
    groups, names = _numbered(used, KEYS)
    present = np.zeros((len(numbers), len(names)), bool)
    at = np.searchsorted(numbers, ints(used, "step"))
    known = at < len(numbers)
    known[known] = numbers[at[known]] == ints(used, "step")[known]
    present[at[known], groups[known]] = True
    changed = np.any(present[1:] != present[:-1], axis=1)
    return np.concatenate([np.zeros(min(1, len(numbers)), np.int64), np.cumsum(changed)])
