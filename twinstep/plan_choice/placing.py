"""Place shards on ranks so that the phases of a step are short: each phase takes as long as its bottleneck rank.

TorchRec's greedy walk balances the sum of a rank's work. Ranks wait for each other between phases, so a rank with many
lookups and few bytes to send does not compensate for another. The module is independent of scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The bottleneck rank's load, smoothed: the 20th root of the sum of all ranks' loads to the 20th. The sum also falls if
# one of several bottleneck ranks gets less, so that moves are found one by one.
_ROOT = 1 / 20
# Shards are moved or swapped away from this many ranks with the most weight.
_LOOKED_AT = 4
# The search ends after this many evaluated moves, so that it does not depend on the clock.
_BUDGET = 4_000_000


@dataclass(frozen=True, slots=True)
class Shards:
    """A set of shards: `loads` [shards, phases] and `stored_bytes` [shards, tiers of memory]."""

    loads: Floats
    stored_bytes: Floats


@dataclass(frozen=True, slots=True)
class RankLoads:
    """The load of each rank, `loads` [ranks, phases], and the memory still free, `free_bytes` [ranks, tiers]."""

    loads: Floats
    free_bytes: Floats

    def copy(self) -> RankLoads:
        return RankLoads(self.loads.copy(), self.free_bytes.copy())

    def add(self, where: Ints | list[int], shards: Shards) -> None:
        """Add a shard to each of these distinct ranks."""
        self.loads[where] += shards.loads
        self.free_bytes[where] -= shards.stored_bytes

    def step_ms(self, weights: Floats) -> float:
        """Return the ms of all phases."""
        return float(self.loads.max(axis=0) @ weights)


@dataclass(frozen=True, slots=True)
class Placement:
    """The first rank of each block, the rank of each shard, and the resulting load of all ranks."""

    firsts: list[int]
    ranks: Ints
    after: RankLoads


def place(
    before: RankLoads,
    blocks: Sequence[Shards],
    shards: Shards,
    weights: Floats,
    start: tuple[list[int], Ints] | None = None,
    moves: int | None = None,
) -> Placement | None:
    """Place blocks, each on adjacent ranks from a multiple of its size, and shards; None if memory is insufficient.

    Args:
        before: the ranks' loads and free memory before.
        blocks: shards that are placed together, one per rank.
        shards: shards that are placed singly.
        weights: ms per unit of load, [phases].
        start: the first ranks of blocks, where they stay, and the ranks from which shards are moved; None: all are
            placed anew.
        moves: the maximal number of moves and swaps of shards once all are placed; None: as many as help.
    """
    total = sum((block.loads.sum(axis=0) for block in blocks), before.loads.sum(axis=0) + shards.loads.sum(axis=0))
    parts = [before.loads, shards.loads, *(block.loads for block in blocks)]
    scale = np.max([total / len(before.loads), *(part.max(axis=0) for part in parts if len(part))], axis=0)
    used = (weights > 0) & (scale > 0)
    scale, weights = scale[used], (weights * scale)[used]

    def scale_loads(given: Shards) -> Shards:
        return Shards(given.loads[:, used] / scale, given.stored_bytes)

    inner = RankLoads(before.loads[:, used] / scale, before.free_bytes.copy())
    if start is None:
        firsts = _place_blocks(inner, [scale_loads(block) for block in blocks], weights)
        ranks = None if firsts is None else _place_shards(inner, scale_loads(shards), weights)
        if firsts is None or ranks is None:
            return None
    else:
        firsts, ranks = start[0], start[1].copy()
        _add(inner, [scale_loads(block) for block in blocks], scale_loads(shards), start)
    _improve(inner, scale_loads(shards), ranks, weights, moves)
    after = before.copy()
    _add(after, blocks, shards, (firsts, ranks))
    return Placement(firsts, ranks, after)


def _add(to: RankLoads, blocks: Sequence[Shards], shards: Shards, where: tuple[list[int], Ints]) -> None:
    """Add blocks from their first ranks on, and shards on their ranks."""
    firsts, ranks = where
    for first, block in zip(firsts, blocks, strict=True):
        to.add(np.arange(first, first + len(block.loads)), block)
    np.add.at(to.loads, ranks, shards.loads)
    np.subtract.at(to.free_bytes, ranks, shards.stored_bytes)


def _powers(loads: Floats) -> Floats:
    fourth = (loads * loads) ** 2
    powers: Floats = (fourth * fourth) ** 2 * fourth
    return powers


def _norms(sums: Floats) -> Floats:
    norms: Floats = np.maximum(sums, 0.0) ** _ROOT
    return norms


def _place_blocks(ranks: RankLoads, blocks: Sequence[Shards], weights: Floats) -> list[int] | None:
    """Place the heaviest blocks first, each where it lengthens the phases least; return their first ranks."""
    firsts = [0] * len(blocks)
    for number in sorted(range(len(blocks)), key=lambda each: -float(blocks[each].loads.sum(axis=0) @ weights)):
        block = blocks[number]
        size = len(block.loads)
        starts = np.arange(0, len(ranks.loads) - size + 1, size)
        there = starts[:, None] + np.arange(size)
        more = _powers(ranks.loads[there] + block.loads) - _powers(ranks.loads[there])
        longer = _norms(_powers(ranks.loads).sum(axis=0) + more.sum(axis=1)) @ weights
        longer[(ranks.free_bytes[there] < block.stored_bytes).any(axis=(1, 2))] = np.inf
        best = int(np.argmin(longer))
        if np.isinf(longer[best]):
            return None
        firsts[number] = int(starts[best])
        ranks.add(there[best], block)
    return firsts


def _place_shards(ranks: RankLoads, shards: Shards, weights: Floats) -> Ints | None:
    """Place the heaviest shards first, each where it lengthens the phases least; return their ranks."""
    found = np.zeros(len(shards.loads), np.int64)
    powers = _powers(ranks.loads)
    sums = powers.sum(axis=0)
    for number in np.argsort(-shards.loads @ weights, kind="stable"):
        load, stored = shards.loads[number], shards.stored_bytes[number]
        after = _powers(ranks.loads + load)
        # Only the chosen rank's term of each sum changes, so all ranks are tried at once.
        longer = _norms(sums + after - powers) @ weights
        longer[(ranks.free_bytes < stored).any(axis=1)] = np.inf
        best = int(np.argmin(longer))
        if np.isinf(longer[best]):
            return None
        found[number] = best
        ranks.add([best], Shards(load, stored))
        sums = sums + after[best] - powers[best]
        powers[best] = after[best]
    return found


def _improve(ranks: RankLoads, shards: Shards, found: Ints, weights: Floats, most: int | None) -> None:
    """Move a shard away from one of the heaviest ranks, or swap it for another, while that shortens the phases."""
    looked_at = made = 0
    while len(found) and looked_at < _BUDGET and made != most:
        powers = _powers(ranks.loads)
        sums = powers.sum(axis=0)
        shares = (powers / np.where(sums > 0, sums, 1.0)) @ (weights * _norms(sums))
        # Gains below rounding are none: without this margin two moves could undo each other until the budget is spent.
        below = float(_norms(sums) @ weights) * (1 - 1e-6)
        moves = [_Moves(ranks, shards, found, int(rank), weights) for rank in np.argsort(-shares)[:_LOOKED_AT]]
        looked_at += sum(each.size for each in moves)
        if not any(each.move(below) for each in moves) and not any(each.swap(below) for each in moves):
            return
        made += 1


class _Moves:
    """The possible moves of one rank's shards."""

    def __init__(self, ranks: RankLoads, shards: Shards, found: Ints, rank: int, weights: Floats) -> None:
        self._ranks, self._shards, self._found, self._rank, self._weights = ranks, shards, found, rank, weights
        self._own = np.flatnonzero(found == rank)
        self.size = len(self._own) * (len(ranks.loads) + len(found))

    def move(self, below: float) -> bool:
        """Make the move with the shortest phases, if these are shorter than `below`."""
        if not len(self._own):
            return False
        own = Shards(self._shards.loads[self._own, None], self._shards.stored_bytes[self._own, None])
        times = self._after(np.arange(len(self._ranks.loads)), own)
        times[:, self._rank] = np.inf
        best = int(np.argmin(times))
        if times.flat[best] >= below:
            return False
        shard, rank = divmod(best, times.shape[1])
        self._carry(int(self._own[shard]), rank)
        return True

    def swap(self, below: float) -> bool:
        """Make the swap with another rank's shard with the shortest phases, if these are shorter than `below`."""
        others = np.flatnonzero(self._found != self._rank)
        if not len(self._own) or not len(others):
            return False
        to, loads, stored = self._found[others], self._shards.loads, self._shards.stored_bytes
        gone = Shards(loads[self._own, None] - loads[None, others], stored[self._own, None] - stored[None, others])
        times = self._after(to, gone)
        best = int(np.argmin(times))
        if times.flat[best] >= below:
            return False
        own, other = divmod(best, len(others))
        self._carry(int(self._own[own]), int(to[other]))
        self._carry(int(others[other]), self._rank)
        return True

    def _after(self, to: Ints, gone: Shards) -> Floats:
        """Return the length of phases after loads `gone` moved to each of these ranks, [own shards, ranks]."""
        loads, free = self._ranks.loads, self._ranks.free_bytes
        powers = _powers(loads)
        here, there = _powers(loads[self._rank] - gone.loads), _powers(loads[to] + gone.loads)
        times = _norms(powers.sum(axis=0) - powers[self._rank] - powers[to] + here + there) @ self._weights
        # A swap may also bring this rank more bytes than it gives away.
        misfits = (free[to] < gone.stored_bytes) | (free[self._rank] < -gone.stored_bytes)
        return np.where(misfits.any(axis=-1), np.inf, times)

    def _carry(self, shard: int, rank: int) -> None:
        load, stored = self._shards.loads[shard], self._shards.stored_bytes[shard]
        self._ranks.add([int(self._found[shard])], Shards(-load, -stored))
        self._ranks.add([rank], Shards(load, stored))
        self._found[shard] = rank
