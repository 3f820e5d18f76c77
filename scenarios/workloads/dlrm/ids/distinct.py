"""Computes by formula how many rows the ids of a table's features name together.

Assumptions: each feature names each row a Poisson number of times, ids of files are drawn from them, and all ids of a
bag but the first fall evenly over blocks. Rows that are frequent with one feature are also frequent with another if
both are Zipf's in the same order, or from files; otherwise frequent rows are independent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scenarios.config.scenario import Ids, Table
from scenarios.sparse.expected import Floats
from scenarios.sparse.input_dist import block_size
from scenarios.workloads.dlrm.batches import Ints, file_bags
from scenarios.workloads.dlrm.ids.distribution import Zipf, keep_read_only, zipf_of

# The number of most frequent rows that are counted one by one.
_ALONE = 1 << 12

_CACHED = 128
# Blocks are named by equal ids again in each pass over rows, and in each point of a study with these tables.
_CACHED_BLOCKS = 1 << 15

# A feature (the table as that feature sees it), and its number of ids, or of first ids of bags.
_Drawn = tuple[Table, float]


def distinct_rows(table: Table, rows: range, ids: Sequence[float]) -> float:
    """Return the expected number of rows of a block that are named by the ids falling into it; `ids` by feature."""
    return _distinct_rows(table, rows, tuple(ids)) if rows else 0.0


@lru_cache(maxsize=_CACHED_BLOCKS)
def _distinct_rows(table: Table, rows: range, ids: tuple[float, ...]) -> float:
    features = zip(table.by_feature, ids, strict=True)
    drawn = [(feature, count / _ids_per_drawn(feature, rows)) for feature, count in features if count > 0]
    found = _count_named(drawn, rows)
    for bags, others in _further_ids(drawn):
        found += (len(rows) - found) * -math.expm1(-bags * others / table.rows)
    return min(found, sum(ids), len(rows))


def _count_named(drawn: Sequence[_Drawn], rows: range) -> float:
    """Return how many rows of a block drawn ids name; features whose frequent rows differ name them independently."""
    by_order: dict[str, list[_Drawn]] = {}
    for one in drawn:
        by_order.setdefault(_order(one[0].ids), []).append(one)
    found = 0.0
    for alike in by_order.values():
        rates, counts = _rates(alike, rows)
        named = float(-np.expm1(-rates) @ counts)
        found = found + (1 - found / len(rows)) * named if found else named
    return found


def expected_ids(table: Table, rows: range, samples: float) -> list[float]:
    """Return the expected number of ids of `samples` samples in a block of rows, by feature of the table.

    Assumptions are those of `distinct_rows`.
    """
    if not rows:
        return [0.0 for _ in table.by_feature]
    return [
        (samples if feature.ids.bags == "by_first" else samples * feature.ids_per_sample)
        * _ids_per_drawn(feature, rows)
        for feature in table.by_feature
    ]


@dataclass(frozen=True, slots=True)
class DistinctDraws:
    """A feature's bags on a rank with `samples` samples; each named id counts once per rank. Implements `Draws`."""

    table: Table
    samples: int

    def mean(self, blocks: int = 1) -> Floats:
        """Return the mean number of rows of each block that a rank's samples name."""
        return _distinct_by_block(self.table, self.samples, blocks)


@lru_cache(maxsize=_CACHED)
def _distinct_by_block(table: Table, samples: float, blocks: int) -> Floats:
    """Return the number of rows of each block of a table that `samples` samples name: [blocks]."""
    size = block_size(table.rows, blocks)
    starts = (min(block * size, table.rows) for block in range(blocks))
    ranges = [range(start, min(start + size, table.rows)) for start in starts]
    if _order(table.ids) == "uniform" and not _others(table):
        # All rows are alike, so only the size of a block matters: two sizes at most but for empty blocks.
        found = {len(rows): distinct_rows(table, rows, expected_ids(table, rows, samples)) for rows in ranges}
        return keep_read_only(np.array([found[len(rows)] for rows in ranges]))
    return keep_read_only(np.array([distinct_rows(table, rows, expected_ids(table, rows, samples)) for rows in ranges]))


def _order(ids: Ids) -> str:
    """Return a key that is equal for laws with the same frequent rows."""
    return ids.order if ids.kind == "zipf" and ids.exponent else ids.kind if ids.kind == "file" else "uniform"


def _rates(drawn: Sequence[_Drawn], rows: range) -> tuple[Floats, Floats]:
    """Return how many ids name each row of a block, equal rows together, and the number of rows of each rate."""
    if len(drawn) > 1 and drawn[0][0].ids.kind == "file":
        of_files = [(count, *_of_file(feature.ids, rows)) for feature, count in drawn]
        named, which = np.unique(np.concatenate([inside for _, inside, _ in of_files]), return_inverse=True)
        each = [np.full(inside.size, count / max(everything, 1)) for count, inside, everything in of_files]
        rates: Floats = np.bincount(which, np.concatenate(each), named.size).astype(np.float64)
        return rates, np.ones(named.size)
    found = [(count, *_row_shares(feature, rows)) for feature, count in drawn]
    rates = found[0][0] * found[0][1]
    for count, shares, _ in found[1:]:
        rates = rates + count * shares
    return rates, found[0][2]


def _further_ids(drawn: Sequence[_Drawn]) -> list[tuple[float, float]]:
    """Return, for bags that their first ids decide, pairs of a number of distinct bags and their further ids.

    A first id decides the ids at all places of its bags, for any feature: features with bags of equal lengths have the
    same bag for a first id. Each pair covers the places beyond the previous pair's.
    """
    firsts = [(feature, count) for feature, count in drawn if _others(feature)]
    found, before = [], 0.0
    for others in sorted({_others(feature) for feature, _ in firsts}):
        longer = [one for one in firsts if _others(one[0]) >= others]
        bags = _count_named(longer, range(longer[0][0].rows))
        found.append((bags, others - before))
        before = others
    return found


def _ids_per_drawn(feature: Table, rows: range) -> float:
    """Return the expected number of ids in a block for each drawn id, or drawn first id."""
    shares, counts = _row_shares(feature, rows)
    return float(shares @ counts) + _others(feature) * len(rows) / feature.rows


def _others(feature: Table) -> float:
    """Return the number of ids that come with each drawn id."""
    return max(feature.ids_per_sample - 1, 0.0) if feature.ids.bags == "by_first" else 0.0


@lru_cache(maxsize=_CACHED)
def _row_shares(table: Table, rows: range) -> tuple[Floats, Floats]:
    """Return the probabilities of a block's rows, and the number of rows with each.

    Zipf's most frequent rows count one by one; the others are grouped by rank in steps of 2 %; if rows are shuffled, a
    block has its share of these.
    """
    if table.ids.kind == "file":
        inside, everything = _of_file(table.ids, rows)
        times, many = np.unique(np.bincount(inside), return_counts=True)
        return keep_read_only(times / max(everything, 1)), keep_read_only(many.astype(np.float64))
    zipf = zipf_of(table, 1)
    if zipf is None:
        return keep_read_only(np.full(1, 1 / table.rows)), keep_read_only(np.full(1, float(len(rows))))
    zipf = dataclasses.replace(zipf, head=min(_ALONE, table.rows))
    where = zipf.firsts()
    alone = zipf.probabilities()[(where >= rows.start) & (where < rows.stop)]
    within = range(table.rows) if zipf.shuffle else rows
    alike, counts = _alike(dataclasses.replace(zipf, shuffle=None), max(within.start, zipf.head) + 1, within.stop + 1)
    part = len(rows) / table.rows if zipf.shuffle else 1.0
    return keep_read_only(np.append(alone, alike)), keep_read_only(np.append(np.ones(alone.size), counts * part))


@lru_cache(maxsize=_CACHED)
def _alike(zipf: Zipf, first: int, last: int) -> tuple[Floats, Floats]:
    """Return probabilities of the ranks from `first` to before `last`, in groups 2 % wide, and the groups' sizes."""
    if first >= last:
        return keep_read_only(np.empty(0)), keep_read_only(np.empty(0))
    # `unique`, as neighbouring edges are equal once they are cut to whole ranks.
    edges = np.unique(np.append(np.geomspace(first, last, 1000).astype(np.int64), last))
    alike = np.sqrt(edges[:-1] * (edges[1:] - 1.0)) ** -zipf.exponent / zipf.total()
    return keep_read_only(alike), keep_read_only(np.diff(edges).astype(np.float64))


def _of_file(ids: Ids, rows: range) -> tuple[Ints, int]:
    """Return a file's ids in a block, and the number of all its ids."""
    assert ids.path is not None
    named = file_bags(ids.path)[1]
    return named[(named >= rows.start) & (named < rows.stop)], named.size
