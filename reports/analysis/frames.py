"""Summaries of one run's spans, memory and metrics as frames: ranks, memory, metrics by step, the outline of all spans.

All functions are pure; parts of a run are read one by one and added up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.intervals import Ints, RankAxis, Union, union
from reports.store.columns import frame_of_columns
from reports.store.parts import Bools, Part
from scenarios.seam.memory import PHASES, is_there
from scenarios.seam.trace import ALWAYS, COPYING, IN_HOST, LOADING

COMPUTE = "compute"
STEP = "step"
KEYS = ["kind", "label", "stream"]

# Columns of the spans that the functions below read.
OUTLINE_COLUMNS = [*KEYS, "step", "rank", "host", "rank_count", "start_ns", "end_ns"]
_MEMBER = ["group", "call"]
RANK_COLUMNS = ["kind", "kernel", "step", "rank", "host", "rank_count", "start_ns", "end_ns", "bytes_sent", *_MEMBER]

RANKS = {
    **dict.fromkeys(["rank", "host", "rank_count", "steps", "step_ns", "compute_ns", "communication_ns"], "int"),
    **dict.fromkeys(["hidden_ns", "exposed_ns", "transfer_ns", "wait_ns", "idle_ns"], "int"),
    **dict.fromkeys(["bytes_sent", "compute_over_mean"], "float"),
}
RANK_MEMORY = {
    **dict.fromkeys(["rank", "rank_count", "used_bytes", "capacity_bytes", "free_bytes"], "int"),
    "used_share": "float",
    "phase": "str",
}
METRICS_BY_STEP = {
    "step": "int",
    "name": "str",
    "ranks": "int",
    **dict.fromkeys(["mean", "min", "max"], "float"),
}


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """Return one column as int64."""
    return frame[column].to_numpy(np.int64)


def is_collective(spans: pd.DataFrame) -> Bools:
    """Return which spans are calls that all members of a group have counted."""
    return (ints(spans, "call") >= 0) & (spans["group"] != "").to_numpy(bool)


@dataclass(frozen=True, slots=True)
class Overlaps:
    """A view of what overlaps on each rank; arrays are by span, moments lie on an axis on which ranks are disjoint.

    A collective starts on a rank when that rank enters it. The collective waits for later members until `ready`, the
    last of which is the row `last_member`; then it transfers. A recv counts as transfer throughout, because spans do
    not state its send. `working` is when a rank computes or transfers; work of data loaders and copies of batches are
    neither.
    """

    communicates: Bools
    starts: Ints
    ready: Ints
    ends: Ints
    last_member: Ints
    computing: Union
    working: Union

    @classmethod
    def of(cls, spans: pd.DataFrame) -> Overlaps:
        """Return the overlaps of spans that hold all members of each collective."""
        kind, ranks, start_ns, end_ns = (
            spans["kind"],
            ints(spans, "rank"),
            ints(spans, "start_ns"),
            ints(spans, "end_ns"),
        )
        is_compute = (kind == COMPUTE).to_numpy(bool)
        computes = is_compute & ~spans["kernel"].isin([LOADING, COPYING]).to_numpy(bool)
        communicates = ~is_compute & (kind != STEP).to_numpy(bool)
        last_member = last_members(spans)
        ready_ns = np.clip(start_ns[last_member], start_ns, end_ns)  # clocks of real hosts may disagree a little
        axis = RankAxis.of(ranks, start_ns, end_ns)
        starts, ready, ends = (axis.place(ranks, moments) for moments in (start_ns, ready_ns, end_ns))
        working = np.where(communicates, ready, starts)
        works = computes | communicates
        return cls(
            communicates=communicates,
            starts=starts,
            ready=ready,
            ends=ends,
            last_member=last_member,
            computing=union(starts[computes], ends[computes]),
            working=union(working[works], ends[works]),
        )

    @property
    def hidden_ns(self) -> Ints:
        """Time (ns) of each communication in which its rank computes, on any stream; else 0."""
        return np.where(self.communicates, self.computing.covered_ns(self.starts, self.ends), 0).astype(np.int64)

    @property
    def late_ns(self) -> Ints:
        """Time (ns) of each communication before others have entered in which its rank does not compute; else 0."""
        late = self.ready - self.starts - self.computing.covered_ns(self.starts, self.ready)
        return np.where(self.communicates, late, 0).astype(np.int64)

    @property
    def wait_ns(self) -> Ints:
        """Time (ns) of each communication in which its rank waits for others and does nothing else; else 0."""
        waits = self.ready - self.starts - self.working.covered_ns(self.starts, self.ready)
        return np.where(self.communicates, waits, 0).astype(np.int64)


def last_members(spans: pd.DataFrame) -> Ints:
    """Return for each span the row of its collective's last member to enter (the lowest rank in ties); else its own.

    Members of a collective are in one step, because spans are read by steps.
    """
    last, start_ns = np.arange(len(spans)), ints(spans, "start_ns")
    members = np.flatnonzero(is_collective(spans) & (spans["kind"] != STEP).to_numpy(bool))
    same = ["group", "call", "step"]
    calls = spans[same].iloc[members].groupby(same).ngroup().to_numpy(np.int64)
    # The last of each call is taken; the negative rank makes that the lowest one in ties.
    order = np.lexsort((-ints(spans, "rank")[members], start_ns[members], calls))
    final = np.append(np.diff(calls[order]) != 0, True)[: len(order)]
    entered_last = members[order[final]]  # one row per call, in the order of the calls' numbers
    last[members] = entered_last[calls]
    return last


@dataclass(frozen=True, slots=True)
class Outline:
    """A summary of all spans of a run: `own` are the steps' own spans, `used` the operations used in each step.

    `unrecorded` are the own spans of steps timed with the recording off, numbered by their labels. `calls` of `used` is
    the largest number of calls of the operation by one rank in that step. `hosts` is the number of hosts with spans;
    `is_folded` whether some rank represents others. `first_ns` and `last_ns` are 0 where there are no spans.
    """

    own: pd.DataFrame
    unrecorded: pd.DataFrame
    used: pd.DataFrame
    hosts: int
    is_folded: bool
    first_ns: int
    last_ns: int

    @property
    def elapsed_ns(self) -> int:
        """Time (ns) from the start of the run's first span to the end of its last."""
        return self.last_ns - self.first_ns


def outline(parts: Iterable[Part]) -> Outline:
    """Return the outline of spans with `OUTLINE_COLUMNS`, reading a part at a time."""
    owns, bare, uses, hosts, bounds, is_folded = [], [], [], set[int](), [], False
    for part in parts:
        spans = part.own_spans()
        kind = spans["kind"]
        is_step, is_within = (kind == STEP).to_numpy(bool), (spans["step"] >= 0).to_numpy(bool)
        owns.append(spans[is_step & is_within])
        bare.append(spans[is_step & ~is_within])
        calls = spans[~is_step & is_within].groupby([*KEYS, "step", "rank"], sort=False).size().rename("calls")
        uses.append(calls.groupby([*KEYS, "step"], sort=False).max().reset_index())
        hosts.update(spans["host"].unique().tolist())
        is_folded = is_folded or bool((spans["rank_count"] > 1).any())
        if len(spans):
            bounds.append((int(spans["start_ns"].min()), int(spans["end_ns"].max())))
    return Outline(
        own=pd.concat(owns),
        unrecorded=_number_by_label(pd.concat(bare)),
        used=pd.concat(uses),
        hosts=len(hosts),
        is_folded=is_folded,
        first_ns=min((first for first, _ in bounds), default=0),
        last_ns=max((last for _, last in bounds), default=0),
    )


def _number_by_label(unrecorded: pd.DataFrame) -> pd.DataFrame:
    """Return the spans of steps whose labels have numbers, such as "step 7", with these numbers as their step."""
    numbers = unrecorded["label"].astype(object).str.extract(r"^step (\d{1,18})$", expand=False)
    known = numbers.notna().to_numpy(bool)
    return unrecorded[known].assign(step=numbers[known].astype(np.int64))


def ranks(parts: Iterable[Part]) -> pd.DataFrame:
    """Return one row per rank: how it spent its steps, summed over them.

    `compute_ns + communication_ns - hidden_ns + idle_ns == step_ns`, whatever overlaps on whichever streams.
    Communication that is not hidden, `exposed_ns`, is either `transfer_ns` or, while others have not entered,
    `wait_ns`. `compute_over_mean` is a rank's compute time over the mean of all ranks.
    """
    each = [_sum_times(part) for part in parts]
    keys = ["rank", "host", "rank_count"]
    summed = pd.concat([own for own, _ in each]).groupby(keys, sort=True).sum().reset_index()
    by_rank = pd.concat([bytes_sent for _, bytes_sent in each]).groupby("rank")["bytes_sent"]
    sent = by_rank.sum().where(by_rank.count() == by_rank.size())  # nan if a trace lacks the bytes of some spans
    # Weighted: a representative stands for all ranks of its class.
    mean = np.average(summed["compute_ns"], weights=summed["rank_count"]) if len(summed) else 0.0
    ratio = summed["compute_ns"].to_numpy(float) / mean if mean else np.ones(len(summed))
    bytes_sent = np.where(summed["rank"].isin(sent.index), summed["rank"].map(sent), 0.0)
    return frame_of_columns(
        {**{str(name): summed[name] for name in summed}, "bytes_sent": bytes_sent, "compute_over_mean": ratio}, RANKS
    )


def _sum_times(part: Part) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return each rank's steps of a part summed, and the bytes that it sent, also outside steps."""
    spans, overlaps = part.spans, Overlaps.of(part.spans)
    starts, ends = overlaps.starts, overlaps.ends
    window = (spans["kind"] == STEP).to_numpy(bool) & (ints(spans, "step") >= 0) & part.own
    own = spans.loc[window, ["rank", "host", "rank_count"]]

    def inside(found: Union) -> Ints:
        return found.covered_ns(starts[window], ends[window])

    communicates = overlaps.communicates
    communicating, computing = union(starts[communicates], ends[communicates]), inside(overlaps.computing)
    busy, working = inside(overlaps.computing.join(communicating)), inside(overlaps.working)
    own = own.assign(
        steps=1,
        step_ns=(ends - starts)[window],
        compute_ns=computing,
        communication_ns=inside(communicating),
        hidden_ns=computing + inside(communicating) - busy,
        exposed_ns=busy - computing,
        transfer_ns=working - computing,
        wait_ns=busy - working,
        idle_ns=(ends - starts)[window] - busy,
    )
    summed = own.groupby(["rank", "host", "rank_count"], sort=True).sum().reset_index()
    sent = spans.loc[communicates & part.own, ["rank", "bytes_sent"]]
    return summed, sent.assign(bytes_sent=sent["bytes_sent"].where(sent["bytes_sent"] >= 0))


def rank_memory(memory: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank: memory used in the fullest phase of a step and the capacity; the fullest rank first."""
    by_rank = memory.groupby("rank", sort=True)
    used = pd.DataFrame({phase: _memory_in_phase(memory, phase) for phase in PHASES})
    of_device = memory["capacity_bytes"].where(memory["phases"] != IN_HOST, 0)
    fullest, capacity = used.max(axis=1), of_device.groupby(memory["rank"], sort=True).max()
    share = np.divide(fullest, capacity, out=np.zeros(len(fullest)), where=(capacity > 0).to_numpy(bool))
    columns = {
        "rank": used.index,
        "rank_count": by_rank["rank_count"].first(),
        "used_bytes": fullest,
        "capacity_bytes": capacity,
        "free_bytes": capacity - fullest,
        "used_share": share,
        "phase": used.idxmax(axis=1).where(used.nunique(axis=1) > 1, ALWAYS) if len(used) else [],
    }
    return frame_of_columns(columns, RANK_MEMORY).sort_values(
        ["used_share", "rank"], ascending=[False, True], ignore_index=True
    )


def memory_at_peak(memory: pd.DataFrame, by_rank: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `memory` that are held in each rank's fullest phase; `by_rank` is a frame of `rank_memory`."""
    phase = memory["rank"].map(by_rank.set_index("rank")["phase"])
    there = np.zeros(len(memory), bool)
    for each in (*PHASES, ALWAYS):
        there |= ((phase == each) & _is_there(memory, each)).to_numpy(bool)
    return memory[there]


def _memory_in_phase(memory: pd.DataFrame, phase: str) -> pd.Series:
    sizes = memory["size_bytes"].where(_is_there(memory, phase), 0)
    held: pd.Series = sizes.groupby(memory["rank"], sort=True).sum()
    return held


def _is_there(memory: pd.DataFrame, phase: str) -> pd.Series:
    known = {phases for phases in memory["phases"].unique() if is_there(phases, phase)}
    return memory["phases"].isin(known)


def rank_counts(whole: Outline) -> pd.Series:
    """Return how many ranks each rank represents, itself included, by rank; ranks without steps are left out."""
    counts: pd.Series = whole.own.drop_duplicates("rank").set_index("rank")["rank_count"]
    return counts


def metrics_by_step(metrics: pd.DataFrame, counts: pd.Series) -> pd.DataFrame:
    """Return for each recorded name and step the number of ranks, and their mean, least and greatest value.

    A rank counts as many times as `counts` states, a rank without a count once.
    """
    weight = metrics["rank"].map(counts).fillna(1).astype("int64")
    known = weight.where(metrics["value"].notna(), 0)
    weighed = metrics.assign(weight=weight, known=known, weighed=metrics["value"] * weight)
    by_step = weighed.groupby(["name", "step"], sort=True)
    grouped, index = by_step["value"], by_step.size().index
    columns = {
        "step": index.get_level_values("step"),
        "name": index.get_level_values("name"),
        "ranks": by_step["weight"].sum(),
        "mean": by_step["weighed"].sum() / by_step["known"].sum(),
        "min": grouped.min(),
        "max": grouped.max(),
    }
    return frame_of_columns(columns, METRICS_BY_STEP)


def number_groups(frame: pd.DataFrame, keys: list[str]) -> tuple[Ints, pd.DataFrame]:
    """Return the group number of each row [rows] and the groups' keys, both in the order of the keys."""
    grouped = frame.groupby(keys, sort=True)
    names = grouped.size().reset_index()[keys]
    return np.asarray(grouped.ngroup(), np.int64), names
