"""Propose plans, simulate them, and learn from the simulations how long exchanges take.

A proposal follows a rule that chooses each table's sharding: on one rank, columns or rows cut if it takes long, or
replicated if that costs little. The proposals with the shortest expected step are simulated.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.config.scenario import Recommender, Scenario, Table
from scenarios.planner.options import capacity_bytes, topology_of
from scenarios.planner.pinned_plan import place_pinned
from scenarios.planner.placed import Plan, PlannedTable, plan_of
from scenarios.planner.plan import plan_tables
from scenarios.planner.types import ShardingOption, perf_ms, write_ranks_in_order
from scenarios.run_length import runs_of
from scenarios.seam.errors import NoRoomError, ScenarioError
from scenarios.sharding_kind import ShardingKind
from twinstep.plan_choice.evaluated_plan import SearchStoppedError, Tried, change_tables, evaluate, with_plan
from twinstep.plan_choice.exchanges import Exchanges
from twinstep.plan_choice.placing import Ints, RankLoads, Shards, place
from twinstep.plan_choice.shard_options import CUT_ROWS, PHASES, UPDATE, WITH_ALL_ROWS, ShardOption, ShardOptions

PLANNERS_OWN = "planner"  # the name of its plan
# How often the planner plans with less memory for tables while its plan does not fit beside all else.
_MOST_RESERVES = 4

# A plan of a single sharding type is simulated only if its expected bottleneck is at most this many times as long.
_MOST_WORSE = 1.25
_MOST_ALONE = 2

# Tables are cut above these multiples of a rank's mean compute time.
_COLUMNS_ABOVE = (math.inf, 1.0, 0.5, 0.25)
_ROWS_ABOVE = (2.0, 1.0, 0.5)
# The numbers of best proposals to simulate: at first, and when exchanges are known better.
_PLAYED = (3, 1)

# Gradients of replicated tables are all-reduced while other tables are updated: these shares of that update are tried
# as their total time.
_COPIED = (0.5, 1.0, 0.25)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of which tables are cut by columns or rows, above multiples of a rank's mean, or replicated.

    `start`: all other tables are sharded as in this plan, and moved from where it has them, by at most so many `moves`
    (None: as many as help); None: placed anew.
    """

    columns_above: float = math.inf
    rows_above: float = math.inf
    rows_kind: ShardingKind | None = None
    copied: frozenset[int] = frozenset()
    start: Plan | None = None
    moves: int | None = None

    def __str__(self) -> str:
        parts = [
            *([f"columns cut above {self.columns_above:g}"] if math.isfinite(self.columns_above) else []),
            *([f"{self.rows_kind} above {self.rows_above:g}"] if self.rows_kind else []),
            *([f"{len(self.copied)} copied"] if self.copied else []),
        ]
        return ", ".join(["levelled" if self.start is None else "levelled from another plan", *parts])


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan by a rule, and the expected time of the sparse part of its step."""

    rule: Rule
    plan: Plan
    after: RankLoads
    expected_ms: float


class PlanSearch:
    """A search for the fastest plan: the plans simulated so far, the planner's own first, and the costs known yet.

    `stop` is asked again and again whether to end the search; the planner's own plan is simulated to its end.
    """

    def __init__(self, scenario: Scenario, folder: Path, stop: Callable[[], bool] = lambda: False) -> None:
        self._scenario, self._folder, self._tables, self._stop = scenario, folder, scenario.workload.tables, stop
        self._ways, topology = ShardOptions(scenario), topology_of(scenario)
        self._pinned = place_pinned(scenario, topology)
        self._free = [number for number, table in enumerate(self._tables) if table.name not in self._pinned]
        free_bytes = np.array([(each.storage.hbm, each.storage.ddr) for each in topology.devices], np.float64)
        self._empty = RankLoads(np.zeros((scenario.sharding_ranks, PHASES)), free_bytes)
        for number, table in enumerate(self._tables):
            if table.name in self._pinned:  # the topology has subtracted their memory already
                self._add_loads(self._ways.option_of(number, self._pinned[table.name]))
        self._tier = 0 if scenario.cluster.host.gpu.device.has_own_memory else 1
        self._exchanges = Exchanges(scenario, self._ways)
        self._whole = [self._ways.whole(number, beside_cut=False) for number in self._free]
        compute_ms = sum(way.compute_ms for way in self._whole if way is not None)
        self._mean_ms = compute_ms / scenario.sharding_ranks
        self._seen: set[bytes] = set()
        self.tried: list[Tried] = []
        self.misfit: NoRoomError | None = None  # of the planner's own plan
        self._best: Proposal | None = None

    def run(self) -> None:
        """Simulate the planner's plans, then proposals with the shortest expected step as costs become known better.

        Raises:
            ScenarioError: no plan fits.
            SearchStoppedError: the search was to stop.
        """
        own = self._play_planners()
        self._play_alone(_MOST_WORSE * max(own.perf_ms))
        for most in _PLAYED:
            self._play_best(_cutting_rules(), most)
        if not self.tried:
            assert self.misfit is not None, "the planner's own plan was simulated"
            raise self.misfit
        self._play_copied()

    def go_on(self, start: Plan) -> None:
        """Simulate a plan and the best one with tables moved between ranks, then all proposals that are left.

        Raises:
            SearchStoppedError: the search was to stop.
        """
        best = self._best
        self._play_best([Rule(start=start)], 1)
        self._play_best([Rule(start=min(self.tried, key=lambda tried: tried.step_ns).plan)], 1)
        rules = list(_cutting_rules())
        self._play_best(rules, len(rules))
        if self._best is not best:
            self._play_copied()

    def move_tables(self, start: Plan, moves: int) -> Plan | None:
        """Return a plan with the first moves and swaps of shards that shorten its expected step most.

        All else is as in the plan. None: a table may not be moved by itself, or no move shortens the step.

        Raises:
            SearchStoppedError: the search was to stop.
        """
        found = self._proposal(Rule(start=start, moves=moves))
        if found is None:
            return None
        pairs = zip(start.tables, found.plan.tables, strict=True)
        tables = tuple(_on_ranks_of(*pair) for pair in pairs)
        return None if tables == start.tables else dataclasses.replace(start, tables=tables)

    def _play_planners(self) -> Plan:
        """Simulate the planner's plan and return it; if it does not fit, also its plans with less memory for tables.

        The search then keeps to the memory that the first of these leaves to tables.

        Raises:
            ScenarioError: the planner has no plan.
        """
        asked, planner, name = self._scenario, Recommender.of(self._scenario.workload).planner, PLANNERS_OWN
        plan = own = plan_tables(asked)
        tight: list[Scenario] = []
        while len(tight) < _MOST_RESERVES:
            try:
                self._play(name, plan)
                break
            except NoRoomError as error:
                self.misfit = self.misfit or error
                room_bytes = max(plan.storage_bytes) - error.excess_bytes
            share = math.ceil(100 * (1 - room_bytes / asked.cluster.host.gpu.memory_bytes)) / 100
            name = f"sharding.reserved_share = {share:g}"
            tight.append(asked.with_workload(planner=dataclasses.replace(planner, reserved_share=share)))
            self._scenario = tight[-1]
            try:
                plan = plan_tables(self._scenario)
            except ScenarioError:
                break
        self._scenario = tight[0] if tight else asked
        self._empty.free_bytes[:, self._tier] -= capacity_bytes(asked) - capacity_bytes(self._scenario)
        return own

    def _play_copied(self) -> None:
        """Simulate the best proposal with tables replicated that are cheap to reduce."""
        for share in _COPIED:
            if self._best is not None:
                most_ms = share * float(self._best.after.loads[:, UPDATE].max())
                self._play_best([dataclasses.replace(self._best.rule, copied=self._worth_copying(most_ms))], 1)

    def _add_loads(self, way: ShardOption) -> None:
        """Add the loads of a pinned table to its ranks."""
        for shard, load in zip(way.option.shards, itertools.cycle(way.shards.loads), strict=False):
            assert shard.rank is not None, "it is pinned"
            self._empty.loads[shard.rank] += load

    def _play(self, name: str, plan: Plan) -> bool:
        """Simulate a plan; return whether it is new and the fastest.

        Raises:
            ScenarioError: it does not fit.
            SearchStoppedError: the search was to stop.
        """
        key = _key(plan)
        if key in self._seen:
            return False
        self._seen.add(key)
        played = with_plan(self._scenario, plan, self._folder)
        recording, last, step_ns = evaluate(played, self._is_over)
        is_best = all(step_ns < tried.step_ns for tried in self.tried)
        self.tried.append(Tried(name=name, expected_ms=max(plan.perf_ms), step_ns=step_ns, plan=plan))
        self._exchanges.learn(plan, recording, last)
        return is_best

    def _is_over(self, _: object = None) -> bool:
        return bool(self.tried) and self._stop()

    def _play_alone(self, most_ms: float) -> None:
        """Simulate the planner's plans that use one sharding type for all tables that allow it, unless much worse."""
        plans: dict[ShardingKind, Plan] = {}
        kinds = dict.fromkeys(ShardingKind(kind) for number in self._free for kind in self._tables[number].sharding)
        for kind in kinds:
            alone = change_tables(self._scenario, partial(_alone, kind))
            with suppress(ScenarioError):  # the plan does not fit
                plans[kind] = plan_tables(alone)
        expected = {kind: max(plan.perf_ms) for kind, plan in plans.items() if max(plan.perf_ms) <= most_ms}
        for kind in sorted(expected, key=expected.__getitem__)[:_MOST_ALONE]:
            with suppress(ScenarioError):  # memory besides the tables does not fit
                self._play(f"{kind} alone", plans[kind])

    def _play_best(self, rules: Iterable[Rule], most: int) -> None:
        """Simulate at most `most` new plans of these rules, shortest expected step first.

        If a plan does not fit memory, later plans are limited to the fullest rank's memory in the planner's own plan.
        """
        found: dict[bytes, Proposal] = {}
        for each in map(self._proposal, rules):
            if each is not None and (key := _key(each.plan)) not in self._seen:
                found.setdefault(key, each)
        for each in sorted(found.values(), key=lambda each: each.expected_ms)[:most]:
            try:
                if self._play(str(each.rule), each.plan):
                    self._best = each
            except NoRoomError as error:
                # The first plan is known to fit beside all else in memory; what else there is, estimates leave out.
                known = self.tried[0].plan.storage_bytes if self.tried else each.plan.storage_bytes
                fullest = max(known) - (0 if self.tried else error.excess_bytes)
                self._empty.free_bytes[:, self._tier] = np.minimum(self._empty.free_bytes[:, self._tier], fullest)

    def _proposal(self, rule: Rule) -> Proposal | None:
        """Return the rule's proposal; None if it does not fit memory."""
        if self._is_over():
            raise SearchStoppedError
        ways = [self._way(place, rule) for place in range(len(self._free))]
        before, everywhere = self._empty.copy(), np.arange(self._scenario.sharding_ranks)
        chosen = [way for way in ways if way is not None]
        if len(chosen) < len(ways):
            return None
        for way in chosen:
            if way.is_on_all:
                before.add(everywhere, way.shards)
        blocks = [way for way in chosen if way.by_host]
        singles = [way for way in chosen if not way.by_host and not way.is_on_all]
        shards = Shards(
            np.concatenate([np.zeros((0, PHASES)), *(way.shards.loads for way in singles)]),
            np.concatenate([np.zeros((0, 2)), *(way.shards.stored_bytes for way in singles)]),
        )
        weights = self._exchanges.weights
        start = None if rule.start is None else self._start(rule.start, ways)
        placed = place(before, [way.shards for way in blocks], shards, weights, start, rule.moves)
        if placed is None:
            return None
        ranks = iter(placed.ranks.tolist())
        for way in chosen:
            if way.is_on_all:
                write_ranks_in_order(way.option.shards)
        for way, first in zip(blocks, placed.firsts, strict=True):
            for rank, shard in enumerate(way.option.shards, first):
                shard.rank = rank
        for way in singles:
            for shard in way.option.shards:
                shard.rank = next(ranks)
        kinds = {way.option.sharding_type for way in chosen}
        expected_ms = placed.after.step_ms(weights) + len(kinds) * self._exchanges.latency_ms
        return Proposal(rule, self._plan_of([way.option for way in chosen]), placed.after, expected_ms)

    def _start(self, plan: Plan, ways: Sequence[ShardOption | None]) -> tuple[list[int], Ints]:
        """Return where a plan has the blocks, by their first ranks, and the single shards of these options."""
        pairs = [(way, plan.tables[number]) for way, number in zip(ways, self._free, strict=True) if way is not None]
        singles = [table for way, table in pairs if not way.by_host and not way.is_on_all]
        ranks = [shard.rank for table in singles for shard in table.shards]
        return [table.shards[0].rank for way, table in pairs if way.by_host], np.array(ranks, np.int64)

    def _way(self, place: int, rule: Rule) -> ShardOption | None:
        """Return how a table is sharded by the rule: on one rank by default, by rows where nothing else fits."""
        number, whole = self._free[place], self._whole[place]
        if number in rule.copied:
            return self._ways.copied_option(number)
        if rule.start is not None:
            return self._ways.as_in(number, rule.start.tables[number])
        compute_ms = 0.0 if whole is None else whole.compute_ms
        columns_ms = rule.columns_above * self._mean_ms
        tried: list[ShardOption | None] = []
        if rule.rows_kind and compute_ms > rule.rows_above * self._mean_ms:
            tried.append(self._ways.cut_rows(number, rule.rows_kind))
        elif compute_ms > columns_ms:
            tried.append(self._ways.cut_columns(number, columns_ms))
        tried.append(self._ways.whole(number, beside_cut=math.isfinite(rule.columns_above)))
        found = next((way for way in tried if self._has_room(way)), None)
        return found or next((way for way in self._ways.by_rows(number) if self._has_room(way)), None)

    def _has_room(self, way: ShardOption | None) -> bool:
        """Return whether each shard fits an empty rank by itself."""
        if way is None:
            return False
        return bool((way.shards.stored_bytes.max(axis=0) <= self._empty.free_bytes.max(axis=0)).all())

    def _worth_copying(self, most_ms: float) -> frozenset[int]:
        """Return the tables whose all-reduce costs least per exchange saved, up to `most_ms` of all-reduces."""
        weights, gains = self._exchanges.weights, []
        for number, whole in zip(self._free, self._whole, strict=True):
            reduced_ms = self._exchanges.copied_ms(number)
            if whole is not None and reduced_ms is not None:
                gains.append((float(whole.shards.loads[0] @ weights) - whole.compute_ms, reduced_ms, number))
        chosen, left_ms = set(), most_ms
        for _, reduced_ms, number in sorted(gains, key=lambda each: each[1] / each[0] if each[0] > 0 else math.inf):
            if reduced_ms > left_ms:
                break
            chosen.add(number)
            left_ms -= reduced_ms
        return frozenset(chosen)

    def _plan_of(self, options: Sequence[ShardingOption]) -> Plan:
        """Return the plan of the options, with the planner's expected time of each rank."""
        perf = np.zeros(self._scenario.sharding_ranks)
        options = [*self._pinned.values(), *options]
        for count, shard in (run for option in options for run in runs_of(option.shards)):
            assert shard.rank is not None, "all are placed"
            perf[shard.rank : shard.rank + count] += perf_ms(shard)
        return plan_of(options, perf.tolist(), self._scenario)


def _on_ranks_of(table: PlannedTable, other: PlannedTable) -> PlannedTable:
    """Return a table with its shards on the ranks of another one with as many."""
    if ShardingKind(table.sharding_type).is_on_all_ranks:
        return table
    pairs = zip(table.shards, other.shards, strict=True)
    return dataclasses.replace(table, shards=[dataclasses.replace(own, rank=new.rank) for own, new in pairs])


def _alone(kind: ShardingKind, table: Table) -> dict[str, Any]:
    """Return the change to that sharding type alone, for a table that allows it."""
    return {"sharding": (kind,)} if kind in table.sharding else {}


def _cutting_rules() -> Iterator[Rule]:
    for above in _COLUMNS_ABOVE:
        yield Rule(columns_above=above)
    for kind in CUT_ROWS:
        for rows_above in _ROWS_ABOVE:
            yield Rule(rows_above=rows_above, rows_kind=kind)
            yield Rule(columns_above=rows_above / 4, rows_above=rows_above, rows_kind=kind)


def _key(plan: Plan) -> bytes:
    """Return a key that is equal for plans with equal simulations.

    Types that cut no rows differ only in which tables share exchanges.
    """
    kinds = dict.fromkeys(table.sharding_type for table in plan.tables)
    names = dict(zip((kind for kind in kinds if kind in WITH_ALL_ROWS), itertools.count(), strict=False))
    places = [
        (
            names.get(table.sharding_type, table.sharding_type),
            [(count, row.rank, row.rows, row.columns) for count, row in runs_of(table.shards)],
        )
        for table in plan.tables
    ]
    return hashlib.sha256(repr(places).encode()).digest()
