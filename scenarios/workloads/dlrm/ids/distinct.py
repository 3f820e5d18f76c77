"""How many rows the ids of a table's features name together, by formula.

Each row is taken to be named by a Poisson number of ids of each feature, ids of files to be drawn from them, and other
ids of bags than the first to fall evenly over blocks. Rows that are frequent with one feature are so with another
where both are Zipf's in the same order, or from files; else with which rows they are frequent counts as independent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scenarios.config.scenario import Ids, Table
from scenarios.sparse.expected import CountMoments, Floats
from scenarios.sparse.input_dist import block_size
from scenarios.workloads.dlrm.batches import Ints, file_bags
from scenarios.workloads.dlrm.ids.distribution import Zipf, kept, zipf_of

# So many of the most frequent rows are counted one by one.
_ALONE = 1 << 12

_CACHED = 128

# A feature, as the table is seen by it, and how many ids it draws, or first ids of bags.
_Drawn = tuple[Table, float]


def distinct_rows(table: Table, rows: range, ids: Sequence[float]) -> float:
    """How many rows of a block so many ids that fall into it are expected to name; `ids` by feature of the table."""
    if not rows:
        return 0.0
    features = zip(table.by_feature, ids, strict=True)
    drawn = [(feature, count / _ids_per_drawn(feature, rows)) for feature, count in features if count > 0]
    by_order: dict[str, list[_Drawn]] = {}
    for one in drawn:
        by_order.setdefault(_order(one[0].ids), []).append(one)
    found = 0.0
    for alike in by_order.values():
        rates, counts = _rates(alike, rows)
        named = float(-np.expm1(-rates) @ counts)
        found = found + (1 - found / len(rows)) * named if found else named
    for bags, others in _further_ids(drawn):
        found += (len(rows) - found) * -math.expm1(-bags * others / table.rows)
    return min(found, sum(ids), len(rows))


def expected_ids(table: Table, rows: range, samples: float) -> list[float]:
    """How many ids of so many samples are expected to fall into a block of rows, as `distinct_rows` sees them; by
    feature of the table.
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
    """A feature's bags of a rank with `samples` of them, of which each id that is named counts once a rank. Implements
    `Draws`.
    """

    table: Table
    samples: int

    def moments(self, blocks: int = 1, *, joined: int = 1, ranks: int = 1) -> CountMoments:
        """With probabilities q of being named the mean is the sum of q. If the number of ids were Poisson's, the
        variance would be that of q (1 - q), which is how many more rows twice as many ids name; of n ids it is less by
        n times the square of what one more id adds.
        """
        shape = (blocks, joined)
        once, twice = (_distinct_by_part(self.table, times * self.samples, *shape) for times in (1, 2))
        variance = twice - once
        if self.table.ids_per_sample_kind == "fixed":
            less, more = (_distinct_by_part(self.table, times * self.samples, *shape) for times in (0.99, 1.01))
            drawn = self.samples * (1 if _others(self.table) else self.table.ids_per_sample)
            variance = variance - drawn * ((more - less) / (0.02 * drawn)) ** 2
        return CountMoments(ranks * once, ranks * np.maximum(variance, 0))


@lru_cache(maxsize=_CACHED)
def _distinct_by_part(table: Table, samples: float, blocks: int, joined: int) -> Floats:
    """Rows of each part of a table, [blocks / joined], that so many samples name."""
    size = block_size(table.rows, blocks) * joined
    starts = (min(part * size, table.rows) for part in range(blocks // joined))
    parts = [range(start, min(start + size, table.rows)) for start in starts]
    if _order(table.ids) == "uniform" and not _others(table):
        found = {len(rows): distinct_rows(table, rows, expected_ids(table, rows, samples)) for rows in parts}
        return kept(np.array([found[len(rows)] for rows in parts]))
    return kept(np.array([distinct_rows(table, rows, expected_ids(table, rows, samples)) for rows in parts]))


def _order(ids: Ids) -> str:
    """What is the same where the same rows are frequent."""
    return ids.order if ids.kind == "zipf" and ids.exponent else ids.kind if ids.kind == "file" else "uniform"


def _rates(drawn: Sequence[_Drawn], rows: range) -> tuple[Floats, Floats]:
    """Return how many ids name each row of a block, equal rows together, and how many such rows there are."""
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
    """Of bags that their first ids decide: how many different ones have how many ids beside it.

    A first id decides what stands at each place of its bags, whatever the feature: where two features' bags are as
    long, those of the same first id are the same.
    """
    firsts = [(feature, count) for feature, count in drawn if _others(feature)]
    found, before = [], 0.0
    for others in sorted({_others(feature) for feature, _ in firsts}):
        longer = [one for one in firsts if _others(one[0]) >= others]
        bags = 0.0
        for order in dict.fromkeys(_order(feature.ids) for feature, _ in longer):
            alike = [one for one in longer if _order(one[0].ids) == order]
            every = range(alike[0][0].rows)
            rates, counts = _rates(alike, every)
            named = float(-np.expm1(-rates) @ counts)
            bags = bags + (1 - bags / len(every)) * named if bags else named
        found.append((bags, others - before))
        before = others
    return found


def _ids_per_drawn(feature: Table, rows: range) -> float:
    """Ids in a block for each that is drawn: of bags, their first one."""
    shares, counts = _row_shares(feature, rows)
    return float(shares @ counts) + _others(feature) * len(rows) / feature.rows


def _others(feature: Table) -> float:
    """Ids that come with each that is drawn."""
    return max(feature.ids_per_sample - 1, 0.0) if feature.ids.bags == "by_first" else 0.0


@lru_cache(maxsize=_CACHED)
def _row_shares(table: Table, rows: range) -> tuple[Floats, Floats]:
    """Return probabilities of a block's rows, and how many rows there are of each.

    Zipf's most frequent rows count one by one; of the others those whose ranks are 2 % apart are alike, and of shuffled
    ones a block has its part.
    """
    if table.ids.kind == "file":
        inside, everything = _of_file(table.ids, rows)
        times, many = np.unique(np.bincount(inside), return_counts=True)
        return kept(times / max(everything, 1)), kept(many.astype(np.float64))
    zipf = zipf_of(table, 1)
    if zipf is None:
        return kept(np.full(1, 1 / table.rows)), kept(np.full(1, float(len(rows))))
    zipf = dataclasses.replace(zipf, head=min(_ALONE, table.rows))
    where = zipf.firsts()
    alone = zipf.probabilities()[(where >= rows.start) & (where < rows.stop)]
    within = range(table.rows) if zipf.shuffle else rows
    alike, counts = _alike(dataclasses.replace(zipf, shuffle=None), max(within.start, zipf.head) + 1, within.stop + 1)
    part = len(rows) / table.rows if zipf.shuffle else 1.0
    return kept(np.append(alone, alike)), kept(np.append(np.ones(alone.size), counts * part))


@lru_cache(maxsize=_CACHED)
def _alike(zipf: Zipf, first: int, last: int) -> tuple[Floats, Floats]:
    """Return the probabilities of ranks from `first` to before `last`, of those 2 % apart one, and how many have it."""
    if first >= last:
        return kept(np.empty(0)), kept(np.empty(0))
    edges = np.unique(np.append(np.geomspace(first, last, 1000).astype(np.int64), last))
    alike = np.sqrt(edges[:-1] * (edges[1:] - 1.0)) ** -zipf.exponent / zipf.total()
    return kept(alike), kept(np.diff(edges).astype(np.float64))


def _of_file(ids: Ids, rows: range) -> tuple[Ints, int]:
    """A file's ids in a block, and how many ids it has in all."""
    assert ids.path is not None
    named = file_bags(ids.path)[1]
    return named[(named >= rows.start) & (named < rows.stop)], named.size
