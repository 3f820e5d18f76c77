"""Which option of each table to try next: greedy, uniform and exhaustive; whether a proposal fits is the partitioner's.

A proposer is loaded with a search space, asked for a proposal, told how it went, and asked again until it has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product, repeat
from math import inf, prod
from typing import Protocol

from scenarios.planner.topology import Topology
from scenarios.planner.types import ShardingOption, Storage, known_perf, known_storage
from scenarios.seam.run_length import runs_of

MAX_PROPOSALS = 10_000
_NOTHING = (0, Storage(0, 0, 0))


class Proposer(Protocol):
    """Proposals one after the other: one option of each table."""

    def load(self, search_space: list[ShardingOption], enumerator: object = None) -> None: ...

    def propose(self) -> list[ShardingOption] | None: ...

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None: ...


class GreedyProposer:
    """Each table's fastest option first; then, again and again, the next one of the table with the largest shard.

    `use_depth`: fastest by its slowest shard, else by all shards together. `threshold`: ends when more proposals than
    that (0: however many), one after the other, were no better than the best.
    """

    def __init__(self, use_depth: bool = True, threshold: int | None = None) -> None:
        self._use_depth = use_depth
        self._threshold = threshold
        self._tables: list[list[ShardingOption]] = []
        self._at: list[int] | None = None
        self._best_perf = inf
        self._worse = 0

    def load(self, search_space: list[ShardingOption], enumerator: object = None) -> None:
        self._tables = by_table(search_space, self._use_depth)
        self._at = [0] * len(self._tables)
        self._best_perf, self._worse = inf, 0

    def propose(self) -> list[ShardingOption] | None:
        if self._at is None:
            return None
        return [options[at] for options, at in zip(self._tables, self._at, strict=True)]

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        self._count(perf_rating)
        if self._at is None:
            return
        memory = [_hbm_need(options[at]) for options, at in zip(self._tables, self._at, strict=True)]
        # A table that takes no memory is never moved on.
        left = [index for index in range(len(memory)) if memory[index] > _NOTHING and self._has_next(index)]
        if not left or (self._threshold and self._worse > self._threshold):
            self._at = None
        else:
            self._at[max(left, key=memory.__getitem__)] += 1

    def _count(self, perf_rating: float | None) -> None:
        if perf_rating is None:
            return
        if perf_rating < self._best_perf:
            self._best_perf, self._worse = perf_rating, 0
        else:
            self._worse += 1

    def _has_next(self, index: int) -> bool:
        return self._at is not None and self._at[index] + 1 < len(self._tables[index])


class UniformProposer:
    """One sharding type for all tables, types as the search space has them; one that a table lacks is left out."""

    def __init__(self, use_depth: bool = True) -> None:
        self._use_depth = use_depth
        self._left: list[list[ShardingOption]] = []

    def load(self, search_space: list[ShardingOption], enumerator: object = None) -> None:
        tables = by_table(search_space, self._use_depth)
        types = dict.fromkeys(option.sharding_type for option in search_space)
        uniform = [[_first_of(options, kind) for options in tables] for kind in types]
        whole = [[option for option in options if option is not None] for options in uniform]
        self._left = [options for options in whole if options and len(options) == len(tables)]

    def propose(self) -> list[ShardingOption] | None:
        return list(self._left[0]) if self._left else None

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        del self._left[:1]


class SmallestProposer:
    """One proposal: of each table the option whose largest shard is smallest, for when memory is what is short."""

    def __init__(self) -> None:
        self._proposal: list[ShardingOption] | None = None

    def load(self, search_space: list[ShardingOption], enumerator: object = None) -> None:
        self._proposal = [min(options, key=largest_shard) for options in by_table(search_space, True)]

    def propose(self) -> list[ShardingOption] | None:
        return self._proposal

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        self._proposal = None


class GridSearchProposer:
    """Every combination of options, if there are at most `max_proposals` of them, else none."""

    def __init__(self, max_proposals: int = MAX_PROPOSALS) -> None:
        self._max_proposals = max_proposals
        self._rest: Iterator[tuple[ShardingOption, ...]] = iter(())
        self._next: tuple[ShardingOption, ...] | None = None

    def load(self, search_space: list[ShardingOption], enumerator: object = None) -> None:
        tables = by_table(search_space, True)
        few = prod(len(options) for options in tables) <= self._max_proposals
        self._rest = product(*tables) if few else iter(())
        self._next = next(self._rest, None)

    def propose(self) -> list[ShardingOption] | None:
        return None if self._next is None else list(self._next)

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        self._next = next(self._rest, None)


def by_table(search_space: Sequence[ShardingOption], use_depth: bool) -> list[list[ShardingOption]]:
    """The options of each table, fastest first, ties in the order of the search space."""
    tables: dict[str, list[ShardingOption]] = {}
    for option in search_space:
        tables.setdefault(option.fqn, []).append(option)
    return [sorted(options, key=lambda option: _slowness(option, use_depth)) for options in tables.values()]


def _slowness(option: ShardingOption, use_depth: bool) -> float:
    totals = [(count, known_perf(shard).total) for count, shard in runs_of(option.shards)]
    if use_depth:
        return max(total for _, total in totals)
    return sum(chain.from_iterable(repeat(total, count) for count, total in totals))  # one by one: the last bit counts


def largest_shard(option: ShardingOption) -> Storage:
    """The storage of the option's largest shard."""
    return max(known_storage(shard) for _, shard in runs_of(option.shards))


def _hbm_need(option: ShardingOption) -> tuple[int, Storage]:
    """What decides which table to move on: the bytes of hbm of its largest shard, and what all its shards take."""
    return max(known_storage(shard).hbm for _, shard in runs_of(option.shards)), option.total_storage


def _first_of(options: Sequence[ShardingOption], kind: str) -> ShardingOption | None:
    return next((option for option in options if option.sharding_type == kind), None)
