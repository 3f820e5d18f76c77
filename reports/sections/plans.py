"""The report of a choice of a plan: the verdict, why tables move, the slowest rank of each plan, memory, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import pandas as pd

from reports.analysis.step_breakdown import step_time_ns, typical_step
from reports.analysis.table_costs import (
    LOAD_COLUMNS,
    PHASES,
    by_rank,
    moved_tables,
    rank_loads,
    slowest_rank,
    table_loads,
)
from reports.printed import Printed
from reports.run import Run
from reports.sections.model import Block, Most, Report, ReportSection, ReportTable, Words, lacking, on_page
from reports.sections.plan_memory import MEMORY
from reports.sections.run.tables import on_ranks
from reports.terminal import text
from reports.terminal.rows import records
from scenarios.sharding_kind import COPIED_TYPES

YOURS, PLANNERS, BEST = "your plan", "TorchRec's planner", "best found"
_NAMED = 3
_LISTED = 2  # more ranks are counted, unless they follow each other
_SHOWN = Most(16, 400)
# A rank's memory changes by more than this share, or the change is no reason.
_NOTABLE = 0.01
_PHASES = dict(zip(PHASES, ["lookups", "cache fills", "updates", "ids", "rows"], strict=True))
# TorchRec's own abbreviations, in the order of its documentation.
_SHORT = {
    **{"data_parallel": "DP", "table_wise": "TW", "row_wise": "RW", "column_wise": "CW"},
    **{"table_row_wise": "TWRW", "table_column_wise": "TWCW", "grid_shard": "GRID"},
}


@dataclass(frozen=True, eq=False)
class SimulatedPlan:
    """A plan as its `run` shows it: the step's time, and the load of each rank and table in a typical step.

    `of_tables` is the run of the tables alone, for a script, whose own run does not show the loads of tables.
    """

    name: str
    run: Run
    of_tables: Run | None = None

    @property
    def placed(self) -> Run:
        """The run that shows where tables lie and the loads that they cause."""
        return self.of_tables or self.run

    @cached_property
    def step_ns(self) -> float:
        """The time of a step, as a prediction with this plan reports it."""
        return step_time_ns(self.run)

    @cached_property
    def loads(self) -> pd.DataFrame:
        """The load of each rank by sharding type and phase, in ns."""
        parts = self.placed.parts(LOAD_COLUMNS, [typical_step(self.placed) or 0], beside=False)
        return rank_loads(pd.concat([part.own_spans() for part in parts], ignore_index=True))

    @cached_property
    def tables(self) -> pd.DataFrame:
        """The load of each table on each rank by phase, in ns."""
        return table_loads(self.placed.plan, self.loads)

    @cached_property
    def slowest(self) -> dict[str, Any]:
        """The rank whose phases exceed the mean rank's most, and by how much; empty where spans show no tables."""
        return next(iter(records(slowest_rank(self.loads, self.placed.rank_counts))), {})


class Move(NamedTuple):
    """A table that lies elsewhere in the best plan: where, why, and the worst rank's time that its move saves."""

    table: str
    before: str
    after: str
    why: str
    saved_ns: float
    cost_ns: float


@dataclass(frozen=True, repr=False)
class PlansView(Printed):
    """Simulated plans of a scenario's tables, the best one last, and how they were found; printed, the verdict.

    Attributes:
        plans: the user's plan if there is one, the planner's own, and the best.
        tried: the number of plans that were simulated.
        stopped: why the search ended early, in words; "": it did not.
        file: of the best plan.
        command: predicts with that file.
        reserved_share: of each GPU's memory that the planner keeps from tables; None: that of a script is not known.
        notes: sentences on what was simulated.
        best_json: the best plan as the file's content.
        misfits: names of the plans that do not fit, the user's and the planner's, which are not among the plans then.
        few: the user's plan with its first move, with the first two, ...
        full: whether a terminal shows all tables that move.
    """

    plans: Sequence[SimulatedPlan]
    tried: int
    stopped: str
    file: str
    command: str
    reserved_share: float | None
    notes: Sequence[str] = field(default=())
    best_json: str = ""
    misfits: Sequence[str] = ()
    few: Sequence[SimulatedPlan] = ()
    full: bool = False

    def _report(self) -> tuple[Report, PlansView]:
        return PLANS, self

    @property
    def distinct(self) -> Sequence[SimulatedPlan]:
        """The plans without the best one a second time."""
        return self.plans[:-1] if self.best in self.plans[:-1] else self.plans

    @property
    def first(self) -> SimulatedPlan:
        """The plan that the best one is compared with: the user's, else the planner's."""
        return self.plans[0]

    @property
    def best(self) -> SimulatedPlan:
        """The fastest of the compared plans."""
        return self.plans[-1]

    @cached_property
    def moves(self) -> list[Move]:
        """The tables that lie elsewhere in the best plan, those that shorten the worst rank most first."""
        found = [self._move(name) for name in moved_tables(self.first.placed.plan, self.best.placed.plan)]
        return sorted(found, key=lambda one: (-one.saved_ns, -one.cost_ns))

    @cached_property
    def excess(self) -> pd.DataFrame:
        """The time in ns by which ranks of the first plan exceed every rank of the best plan, [rank, phase]."""
        return (by_rank(self.first.loads) - by_rank(self.best.loads).max()).clip(lower=0.0)

    @cached_property
    def worst_rank(self) -> int:
        """The first plan's rank that exceeds all ranks of the best plan most; -1 if none does."""
        totals = self.excess.sum(axis=1).to_numpy(float)
        return int(self.excess.index.to_numpy()[totals.argmax()]) if totals.any() else -1

    @cached_property
    def _worst_phases(self) -> dict[str, float]:
        """The phases in which the worst rank exceeds all ranks of the best plan, and by how much, in ns."""
        own = records(self.excess[(self.excess.index == self.worst_rank)])
        return {phase: ns for each in own for phase, ns in each.items() if ns > 0}

    @cached_property
    def culprits(self) -> tuple[list[str], float]:
        """The tables that make the worst rank slow, and by how much (ns) it exceeds the best plan's ranks by them.

        The tables are the fewest, at most `_NAMED`, whose moves save on that rank as much as its excess.
        """
        names, saved_ns, excess_ns = list[str](), 0.0, sum(self._worst_phases.values())
        for move in self.moves[:_NAMED]:
            if move.saved_ns > 0 and saved_ns < excess_ns:
                names.append(move.table)
                saved_ns += move.saved_ns
        return names, min(saved_ns, excess_ns)

    def _move(self, name: str) -> Move:
        first, best = self.first, self.best
        before, after = (_shards(one, name) for one in (first, best))
        own, then = (one.tables[(one.tables["table"] == name).to_numpy(bool)] for one in (first, best))
        phases = [*self._worst_phases]
        was_ns, is_ns = (frame.loc[frame["rank"] == self.worst_rank, phases].sum().sum() for frame in (own, then))
        return Move(
            table=name,
            before=_place(first, name),
            after=_place(best, name),
            why=_why(first, best, before, after, own),
            saved_ns=float(was_ns - is_ns),
            cost_ns=float(own[list(PHASES)].sum().sum()),
        )


def _shards(plan: SimulatedPlan, table: str) -> pd.DataFrame:
    """Return the rows of a table's shards."""
    return plan.placed.plan[(plan.placed.plan["table"] == table).to_numpy(bool)]


def _why(
    first: SimulatedPlan, best: SimulatedPlan, before: pd.DataFrame, after: pd.DataFrame, own: pd.DataFrame
) -> str:
    """Return in a clause what gets shorter by the move: an exchange, or a phase or memory of a rank that it leaves."""
    if after["sharding_type"].isin(COPIED_TYPES).any():
        return f"no exchange, which took {text.duration(float(own[['ids_ns', 'rows_ns']].sum().sum()))}"
    if {*before["rank"]} == {*after["rank"]} and len(before) == len(after):
        kind = str(after["sharding_type"].iloc[0])
        return f"same place, exchanged with {_SHORT.get(kind, kind)}"
    loads = [by_rank(one.loads) for one in (first, best)]
    gone = sorted({*before["rank"]} & {*loads[0].index} & {*loads[1].index})
    times = [
        (*(float(each.at[rank, phase]) for each in loads), rank, phase)  # type: ignore[arg-type]
        for rank in gone
        for phase in PHASES
    ]
    was_ns, is_ns, rank, phase = max(times, key=lambda one: one[0] - one[1], default=(0.0, 0.0, -1, ""))
    if was_ns > is_ns:
        return f"rank {rank}: {_PHASES[phase]} {_change(text.duration(was_ns), text.duration(is_ns))}"
    used = [
        dict(zip(one.run.rank_memory["rank"], one.run.rank_memory["used_bytes"], strict=True)) for one in (first, best)
    ]
    rank = max(gone, key=lambda one: used[0].get(one, 0) - used[1].get(one, 0), default=-1)
    if used[0].get(rank, 0) > (1 + _NOTABLE) * used[1].get(rank, 0):
        return f"rank {rank}: memory {_change(text.size(used[0][rank]), text.size(used[1][rank]))}"
    return "makes room for others" if gone else ""


def _change(before: str, after: str) -> str:
    """Return "9.10 -> 4.20 ms"."""
    number, _, unit = before.rpartition(" ")
    return f"{number if after.endswith(f' {unit}') else before} -> {after}"


def _place(plan: SimulatedPlan, table: str) -> str:
    """Return "TW 14": the table's sharding type in short, and the ranks."""
    shards = _shards(plan, table)
    ranks, kind = sorted({*shards["rank"].tolist()}), str(shards["sharding_type"].iloc[0])
    few = len(ranks) <= _LISTED or ranks[-1] - ranks[0] < len(ranks)
    where = on_ranks(ranks, plan.placed.info.world_size) if few else f"{len(ranks):,} ranks"
    return f"{_SHORT.get(kind, kind)} {'all' if kind in COPIED_TYPES else where}"


def verdict(view: PlansView) -> str:
    """Return the simulated step of each plan, and which tables cost most, in a sentence without a full stop."""
    *others, best = view.plans
    said = [f"{one.name} {text.duration(one.step_ns)}" for one in others]
    if view.misfits:
        whose = " and ".join(name if name == YOURS else f"the plan of {name}" for name in view.misfits)
        return f"{whose} {'do' if len(view.misfits) > 1 else 'does'} not fit; {verdict(replace(view, misfits=()))}"
    if not others:
        return f"{best.name} {text.duration(best.step_ns)}, of {text.count_words(view.tried, 'plan')} simulated"
    if view.tried == 1:
        return f"{said[0]}, and no other plan was simulated"
    if best in others:
        slower = [words for one, words in zip(others, said, strict=True) if one is not best]
        fastest = f"{best.name} {text.duration(best.step_ns)} is the fastest of {view.tried:,} simulated"
        return ", ".join([fastest, *slower])
    change = best.step_ns / view.first.step_ns - 1
    words = ", ".join([*said, f"{best.name} {text.duration(best.step_ns)} ({100 * change:+.0f} %)"])
    names, cost_ns = view.culprits
    if not names:
        return words
    noun, verb = ("table", "costs") if len(names) == 1 else ("tables", "cost")
    return f"{words}: {noun} {', '.join(names)} {verb} +{text.duration(cost_ns)} on rank {view.worst_rank}"


def _verdict(view: PlansView) -> Iterator[Words]:
    yield Words(f"{verdict(view)}.", strong=True)
    stopped = f"; {view.stopped}" if view.stopped else ""
    searched = f"{text.count_words(view.tried, 'plan')} simulated{stopped}."
    yield Words("\n".join([searched, *view.notes]))


def _moves(view: PlansView) -> Iterator[Block]:
    whose = f"in {YOURS}" if view.first.name == YOURS else f"by {PLANNERS}"
    rows = [[one.table, one.before, one.after, one.why] for one in view.moves]
    count = len(view.best.placed.plan["table"].unique())
    title = f"{len(rows):,} of {text.count_words(count, 'table')} are placed otherwise than {whose}"
    yield ReportTable(
        title,
        ["table", "from", "to", "why"],
        rows,
        left=4,
        most=Most(len(rows), 400) if view.full else _SHOWN,
        others="that save less",
        folded=True,
    )
    used = {kind for one in (view.first, view.best) for kind in one.placed.plan["sharding_type"].unique()}
    known = [f"{short} {kind}" for kind, short in _SHORT.items() if kind in used]
    yield Words(f"{', '.join(known)}; then ranks. Phases are those of a simulated step, of all tables on the rank.")


def few_moves(view: PlansView) -> list[dict[str, Any]]:
    """Return the moves one by one, each with those before it, up to those with the shortest step.

    `moves` counts them; a swap of two tables is one move with two rows. `gain` is the share of the step saved.
    """
    rows, plans = list[dict[str, Any]](), [view.first, *view.few]
    fastest = min(range(len(plans)), key=lambda number: plans[number].step_ns)
    for number, (before, after) in enumerate(pairwise(plans[: fastest + 1]), 1):
        for name in moved_tables(before.placed.plan, after.placed.plan):
            places = {"before": _place(before, name), "after": _place(after, name)}
            gain = 1 - after.step_ns / view.first.step_ns
            rows.append({"moves": number, "table": name, **places, "step_ns": after.step_ns, "gain": gain})
    return rows


def _few(view: PlansView) -> Iterator[Block]:
    found = few_moves(view)
    saved_ns, best_ns = view.first.step_ns - found[-1]["step_ns"], view.first.step_ns - view.best.step_ns
    rows = []
    for row in found:
        step = text.duration(row["step_ns"]), text.signed_percent(-row["gain"])
        rows.append([f"{row['moves']}", row["table"], row["before"], row["after"], *step])
    count = text.count_words(found[-1]["moves"], "move")
    title = f"{count} from {YOURS}, each with those before it: {saved_ns / best_ns:.0%} of the gain"
    yield ReportTable(title, ["move", "table", "from", "to", "step", "change"], rows, left=4)


def slowest_ranks(view: PlansView) -> pd.DataFrame:
    """Return a row for each plan: its step, its slowest rank, and by how much (ns) that exceeds the mean by phase."""
    rows = [{"plan": one.name, "step_ns": one.step_ns, **one.slowest} for one in view.distinct]
    return pd.DataFrame(rows, columns=["plan", "step_ns", "rank", "excess_ns", *PHASES])


def _slowest(view: PlansView) -> Iterator[ReportTable]:
    loads = [by_rank(one.loads) for one in view.distinct]
    rows = []
    for phase in PHASES:
        if any(load[phase].any() for load in loads):
            longest = ((float(load[phase].max()), load[phase].idxmax()) for load in loads)
            rows.append([_PHASES[phase], *(f"{text.duration(ns)} (rank {rank})" for ns, rank in longest)])
    if rows:
        columns = ["phase", *(one.name for one in view.distinct)]
        yield ReportTable("Longest time of each phase of a step, launches included, and its rank", columns, rows)
    rows = []
    for row in records(slowest_ranks(view).dropna(subset=["rank"])):
        longer = sorted((phase for phase in PHASES if row[phase] > 0), key=lambda phase: -row[phase])
        parts = [f"{_PHASES[phase]} +{text.duration(row[phase])}" for phase in longer[:2]]
        rows.append([row["plan"], text.duration(row["step_ns"]), f"{row['rank']:.0f}", ", ".join(parts)])
    if rows:
        columns = ["plan", "step", "rank", "longer than the mean rank's"]
        yield ReportTable("The slowest rank of each plan", columns, rows)


def places(run: Run) -> list[dict[str, Any]]:
    """Return each table's sharding type, compute kernel and ranks, in the words of TorchRec's ParameterSharding."""
    keys = ["table", "sharding_type", "compute_kernel"]
    return [
        {**dict(zip(keys, names, strict=True)), "ranks": own["rank"].tolist()}
        for names, own in run.plan.groupby(keys, sort=False)
    ]


def _command(view: PlansView) -> Iterator[Words]:
    yield Words(f"Predict with it: {view.command}")


def _next(view: PlansView) -> Iterator[Words]:
    yield Words(
        f"Plan: {view.file}: TorchRec's ShardingPlan as JSON, with the sharding type, kernel and ranks of each table."
        "\nUse it in TorchRec: load_plan in `twinstep docs planner` turns it into what"
        " DistributedModelParallel(plan=...) takes."
    )


PLANS = Report(
    lines=lambda view: [],
    data=lambda view: {
        "verdict": verdict(view),
        "tried": view.tried,
        "stopped": view.stopped,
        "fits": YOURS not in view.misfits,
        "notes": [*view.notes],
        "file": view.file,
    },
    sections=[
        ReportSection("verdict", "Plans", [_verdict]),
        ReportSection(
            "few",
            "A few moves",
            [_few],
            absent=lambda view: "" if few_moves(view) else "None simulated that shortens the step.",
            absent_in=(),
            data=lambda view: {"few_moves": few_moves(view)},
        ),
        ReportSection(
            "moves",
            "Tables that move",
            [_moves],
            absent=lacking(lambda view: view.moves, "None."),
            data=lambda view: {"moves": [move._asdict() for move in view.moves]},
        ),
        ReportSection("slowest", "Slowest ranks", [_slowest], data=lambda view: {"plans": slowest_ranks(view)}),
        MEMORY,
        ReportSection(
            "next", "What to do", [_next, on_page(_command)], data=lambda view: {"tables": places(view.best.placed)}
        ),
    ],
)
