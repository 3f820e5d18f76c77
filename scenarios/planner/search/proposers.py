"""Proposers, which choose an option of each table to try next; partitioners decide whether a proposal fits.

A proposer is loaded with a search space and returns a proposal, receives feedback on it, and so on until it has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from itertools import product
from math import inf, prod

from scenarios.planner.topology import Topology
from scenarios.planner.types import ShardingOption, Storage, known_perf, known_storage
from scenarios.run_length import runs_of

MAX_PROPOSALS = 10_000
_NOTHING = (0, Storage(0, 0, 0))

Proposals = Generator[list[ShardingOption], float | None, None]
"""Yields proposals, one option of each table; each `send` is the perf rating of the latest one, if it has any."""


class Proposer(ABC):
    """A generator of proposals, each with one option of each table."""

    def __init__(self) -> None:
        self._proposals: Proposals | None = None
        self._proposal: list[ShardingOption] | None = None

    @abstractmethod
    def _search(self, search_space: list[ShardingOption]) -> Proposals: ...

    def load(self, search_space: list[ShardingOption], enumerator: object = None) -> None:
        self._proposals = self._search(search_space)
        self._proposal = next(self._proposals, None)

    def propose(self) -> list[ShardingOption] | None:
        return None if self._proposal is None else list(self._proposal)

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        if self._proposals is None or self._proposal is None:
            return
        try:
            self._proposal = self._proposals.send(perf_rating)
        except StopIteration:
            self._proposal = None


class GreedyProposer(Proposer):
    """A proposer that starts from the fastest options, and moves the table with the largest shard to its next one.

    `use_depth`: fastest by slowest shard, else by the sum of shards. `threshold`: end after more than that many
    consecutive proposals without improvement; 0 or None: no limit.
    """

    def __init__(self, use_depth: bool = True, threshold: int | None = None) -> None:
        super().__init__()
        self._use_depth = use_depth
        self._threshold = threshold

    def _search(self, search_space: list[ShardingOption]) -> Proposals:
        tables = by_table(search_space, self._use_depth)
        at, best_perf, worse = [0] * len(tables), inf, 0
        while True:
            proposal = [options[index] for options, index in zip(tables, at, strict=True)]
            perf_rating = yield proposal
            if perf_rating is not None:
                worse = 0 if perf_rating < best_perf else worse + 1
                best_perf = min(perf_rating, best_perf)
            memory = [_hbm_need(option) for option in proposal]
            # A table without memory keeps its option.
            left = [
                table
                for table, options in enumerate(tables)
                if memory[table] > _NOTHING and at[table] + 1 < len(options)
            ]
            if not left or (self._threshold and worse > self._threshold):
                return
            at[max(left, key=memory.__getitem__)] += 1


class UniformProposer(Proposer):
    """A proposer of one sharding type for all tables, in the search space's order, without types that a table lacks."""

    def __init__(self, use_depth: bool = True) -> None:
        super().__init__()
        self._use_depth = use_depth

    def _search(self, search_space: list[ShardingOption]) -> Proposals:
        tables = by_table(search_space, self._use_depth)
        for kind in dict.fromkeys(option.sharding_type for option in search_space):
            found = [next((option for option in options if option.sharding_type == kind), None) for options in tables]
            proposal = [option for option in found if option is not None]
            if len(proposal) == len(tables):
                yield proposal


class SmallestProposer(Proposer):
    """A proposer of one proposal, for short memory: each table's option with the smallest largest shard."""

    def _search(self, search_space: list[ShardingOption]) -> Proposals:
        yield [min(options, key=largest_shard) for options in by_table(search_space, True)]


class GridSearchProposer(Proposer):
    """A proposer of every combination of options, if there are at most `max_proposals`; else of none."""

    def __init__(self, max_proposals: int = MAX_PROPOSALS) -> None:
        super().__init__()
        self._max_proposals = max_proposals

    def _search(self, search_space: list[ShardingOption]) -> Proposals:
        tables = by_table(search_space, True)
        if prod(len(options) for options in tables) <= self._max_proposals:
            for proposal in product(*tables):
                yield list(proposal)


def by_table(search_space: Sequence[ShardingOption], use_depth: bool) -> list[list[ShardingOption]]:
    """Return the options of each table, fastest first, ties in the order of the search space."""
    tables: dict[str, list[ShardingOption]] = {}
    for option in search_space:
        tables.setdefault(option.fqn, []).append(option)
    return [sorted(options, key=lambda option: _slowness(option, use_depth)) for options in tables.values()]


def _slowness(option: ShardingOption, use_depth: bool) -> float:
    return max(known_perf(shard).total for _, shard in runs_of(option.shards)) if use_depth else option.total_perf


def largest_shard(option: ShardingOption) -> Storage:
    """Return the storage of the option's largest shard."""
    return max(known_storage(shard) for _, shard in runs_of(option.shards))


def _hbm_need(option: ShardingOption) -> tuple[int, Storage]:
    """Return the sort key by which the proposer picks the table whose sharding it changes next.

    The key is the hbm bytes of the table's largest shard, then the total storage.
    """
    return largest_shard(option).hbm, option.total_storage
