"""Computes by formula how a batch's ids are distributed over blocks of a table's rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scenarios.config.scenario import Ids, Table
from scenarios.sparse.expected import Floats
from scenarios.sparse.input_dist import block_size
from scenarios.workloads.dlrm.batches import bags_of_firsts, file_bags
from scenarios.workloads.dlrm.ids.shuffle import Shuffle

Ints = npt.NDArray[np.int64]

# The most frequent ids are counted one by one: at least `_HEAD`, and at least `_HEAD_PER_BLOCK` for each block.
_HEAD = 1 << 16
_HEAD_PER_BLOCK = 4

# Bags that are decided by first ids: those of the most frequent first ids count one by one, up to this many ids.
_BAG_IDS = 1 << 20

# Cached results; for 131,072 blocks each is a MiB.
_CACHED = 128


def block_shares(table: Table, blocks: int) -> Floats:
    """Return the probability that an id of this table falls into each block of ceil(rows / blocks) rows, [blocks].

    The result is read-only, and exact but for rounding (1e-12); for shuffled Zipf ids of more than `_HEAD` rows within
    15 % of 1 / blocks for up to 600 blocks. Time and memory grow with the blocks, not with the rows.
    """
    return _shares(table.ids, table.rows, blocks, _shuffle_of(table))


@dataclass(frozen=True, slots=True)
class TableDraws:
    """The ids of a table in a rank's batch of `samples` bags, as `batches.draw_bags` draws them; implements `Draws`.

    Bags that their first ids decide: those of the most frequent first ids are counted one by one, all others as if
    their ids were independent. Nothing is random in bags from a file: the mean is over all ranks and all steps until
    reading starts over. A single rank or step may differ from it, for example if the file has as many bags as a step.
    """

    table: Table
    samples: int

    def mean(self, blocks: int = 1) -> Floats:
        """Return the mean number of ids in each block."""
        ids, count = self.table.ids, self.table.ids_per_sample
        if ids.kind == "file":
            assert ids.path is not None
            return _mean_of_file(ids.path, self.samples, block_size(self.table.rows, blocks), blocks)
        if ids.bags == "by_first":
            return self.samples * _mean_of_bag(self.table, blocks)
        shares = np.ones(1) if blocks == 1 else block_shares(self.table, blocks)
        return self.samples * (count if self.table.ids_per_sample_kind == "poisson" else int(count)) * shares


@lru_cache(maxsize=_CACHED)
def _mean_of_bag(table: Table, blocks: int) -> Floats:
    """Return the mean number of a bag's ids in each block."""
    length = int(table.ids_per_sample)
    if blocks == 1:
        return keep_read_only(np.full(1, float(length)))
    head = min(table.rows, max(_HEAD // 16, _BAG_IDS // length))
    zipf = Zipf(table.rows, table.ids.exponent, _shuffle_of(table), head)
    often = zipf.probabilities()
    ids = bags_of_firsts(table, np.repeat(zipf.firsts(), length), np.tile(np.arange(length), head))
    where, count = np.unique(
        np.repeat(np.arange(head), length) * blocks + ids // block_size(table.rows, blocks), return_counts=True
    )
    bag, block = np.divmod(where, blocks)
    share_of_rows = np.diff(_bounds(table.rows, blocks)) / table.rows
    return keep_read_only(np.bincount(block, often[bag] * count, blocks) + (1 - often.sum()) * length * share_of_rows)


@dataclass(frozen=True, slots=True)
class Zipf:
    """A Zipf law: the k-th most frequent of `rows` rows weighs k ** -exponent; the first `head` count one by one.

    The remaining rows (the tail) are integrated over a block if rows lie by frequency (`shuffle` None), and spread
    evenly over the table if shuffled.
    """

    rows: int
    exponent: float
    shuffle: Shuffle | None
    head: int

    def shares(self, blocks: int) -> Floats:
        """Return the probability of each block, [blocks]."""
        bounds = _bounds(self.rows, blocks)
        weights = np.bincount(self.firsts() // block_size(self.rows, blocks), _powers(self.head, self.exponent), blocks)
        if self.shuffle:
            tail = self._tail(np.array([self.head, self.rows])) * (np.diff(bounds) / self.rows)
        else:
            tail = self._tail(np.maximum(bounds, self.head))
        return np.asarray((weights + tail) / (weights + tail).sum())

    def firsts(self) -> Ints:
        """Return the most frequent ids."""
        ranks = np.arange(self.head)
        return self.shuffle(ranks) if self.shuffle else ranks

    def probabilities(self) -> Floats:
        """Return the probabilities of the most frequent ids."""
        return np.asarray(_powers(self.head, self.exponent) / self.total())

    def total(self) -> float:
        """Return the sum of all ids' weights."""
        head = _powers(self.head, self.exponent).sum()
        return float(head + self._tail(np.array([self.head, self.rows])).sum())

    def _tail(self, bounds: Ints) -> Floats:
        """Return the weights from each bound to the next, none below the head, by Euler-Maclaurin's midpoint sum.

        The first omitted term is below (7 / 5760) s (s + 1) (s + 2) head ** (-s - 3): 1e-16 for a head of 2 ** 12.
        """
        low, high = bounds[:-1] + 0.5, bounds[1:] + 0.5
        power = 1 - self.exponent
        # log1p and expm1, as blocks may be a row wide far from the head: a difference of powers would lose its digits.
        logarithm = np.log1p((high - low) / low)
        area = low**power * np.expm1(power * logarithm) / power if power else logarithm
        return np.asarray(area + self.exponent / 24 * (high ** (power - 2) - low ** (power - 2)))


def zipf_of(table: Table, blocks: int) -> Zipf | None:
    """Return the Zipf law of a table's ids; None for other laws, or if all rows are equally frequent."""
    return _zipf(table.ids, table.rows, blocks, _shuffle_of(table))


def _zipf(ids: Ids, rows: int, blocks: int, shuffle: Shuffle | None) -> Zipf | None:
    if ids.kind != "zipf" or ids.exponent == 0:
        return None
    head = min(rows, max(_HEAD, _HEAD_PER_BLOCK * blocks))
    return Zipf(rows, ids.exponent, shuffle, head)


def _shuffle_of(table: Table) -> Shuffle | None:
    """Return the positions of rows of shuffled Zipf ids; None for rows by frequency and for other ids."""
    return Shuffle.of(table) if table.ids.kind == "zipf" and table.ids.order == "shuffled" else None


@lru_cache(maxsize=_CACHED)
def _powers(count: int, exponent: float) -> Floats:
    """Return k ** -exponent for k from 1 to `count`."""
    return keep_read_only(np.arange(1.0, count + 1) ** -exponent)


@lru_cache(maxsize=_CACHED)
def _shares(ids: Ids, rows: int, blocks: int, shuffle: Shuffle | None) -> Floats:
    if ids.kind == "file":
        assert ids.path is not None
        counts = np.bincount(file_bags(ids.path)[1] // block_size(rows, blocks), minlength=blocks)
        return keep_read_only(counts / counts.sum())
    zipf = _zipf(ids, rows, blocks, shuffle)
    return keep_read_only(np.diff(_bounds(rows, blocks)) / rows if zipf is None else zipf.shares(blocks))


@lru_cache(maxsize=_CACHED)
def _mean_of_file(path: Path, bags: int, size: int, blocks: int) -> Floats:
    """Return the mean number of ids in each block of `size` rows, over windows of `bags` bags, around the file."""
    offsets, ids = file_bags(path)
    return keep_read_only(np.bincount(ids // size, minlength=blocks).astype(np.float64) * (bags / (len(offsets) - 1)))


def _bounds(rows: int, blocks: int) -> Ints:
    """Return the first row of each block, and the end of the last one: [blocks + 1]."""
    return np.minimum(np.arange(blocks + 1) * block_size(rows, blocks), rows)


def keep_read_only(values: Floats) -> Floats:
    """Make an array read-only, because it is shared, and return it."""
    values.flags.writeable = False
    return values
