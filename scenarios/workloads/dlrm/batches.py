"""Draws batches for a DLRM, identical for one seed, simulated or real."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from scenarios.config.scenario import Model, Scenario, Table
from scenarios.workloads.dlrm.ids.file import read_bags
from scenarios.workloads.dlrm.ids.id_cache import DRAWN
from scenarios.workloads.dlrm.ids.shuffle import Shuffle, table_seed

Ints = npt.NDArray[np.int64]

# 64 bits for each drawn element.
Bits = TypeVar("Bits", Ints, Tensor)

_ALL_BITS = (1 << 64) - 1
# Elements of a table that are drawn at once: few enough for a CPU's cache, enough to fill a GPU.
_DRAWN_AT_ONCE = {"cpu": 1 << 15, "cuda": 1 << 24}


@dataclass(frozen=True, slots=True)
class TableBatch:
    """One table's ids in one rank's batch: `lengths` [batch], `ids` [sum of lengths], sample after sample; int64, or
    narrower where batches are cached (`id_cache`).
    """

    lengths: npt.NDArray[np.integer]
    ids: npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Dense:
    """Dense input: `features` [batch, dense features] in the model's dtype, `labels` [batch] of 0 and 1 in float32.

    `lengths` has an int64 tensor [batch] for each sequence: the numbers of ids of its samples.
    """

    features: Tensor
    labels: Tensor
    lengths: Sequence[Tensor] = ()


def draw_bags(
    scenario: Scenario, number: int, rank: int, step: int, *, feature: int = 0, with_ids: bool = True
) -> TableBatch:
    """Return the bags of one feature of table `number` in a rank's batch of a step.

    Args:
        feature: its index among the table's features.
        with_ids: False if no code reads the ids; only lengths are drawn then.
    """
    table = scenario.workload.tables[number].by_feature[feature]
    if table.ids.kind == "file":
        first = (step * scenario.cluster.world_size + rank) * scenario.run.batch_size
        return _read_bags(table, first, scenario.run.batch_size)
    batch = scenario.run.batch_size
    if not with_ids and table.ids_per_sample_kind == "fixed":  # nothing is drawn
        return TableBatch(np.full(batch, int(table.ids_per_sample), np.int64), np.zeros(0, np.int64))
    seeds = scenario.run.seed, rank, step, number, *_further(feature)
    key = seeds, draws_alike(table), batch, with_ids
    return TableBatch(*DRAWN.get(key, lambda: _draw_bags_of_key(table, seeds, batch, with_ids=with_ids)))


def draws_alike(table: Table) -> Hashable:
    """Return a value that is equal for features whose ids are drawn by one law."""
    return table.rows, table_seed(table), table.ids, table.ids_per_sample, table.ids_per_sample_kind


def _draw_bags_of_key(table: Table, seeds: Sequence[int], batch: int, *, with_ids: bool) -> tuple[Ints, Ints]:
    """Draw lengths and ids as in `TableBatch`; results depend only on the cache key in `draw_bags`."""
    generator = np.random.default_rng(seeds)
    if table.ids_per_sample_kind == "poisson":
        lengths = generator.poisson(table.ids_per_sample, batch).astype(np.int64)
    else:
        lengths = np.full(batch, int(table.ids_per_sample), dtype=np.int64)
    if with_ids and table.ids.bags == "by_first":
        firsts = draw_ids(generator, table, batch)
        return lengths, bags_of_firsts(table, np.repeat(firsts, lengths), places_in(lengths))
    return lengths, draw_ids(generator, table, int(lengths.sum()) if with_ids else 0)


def places_in(lengths: Ints) -> Ints:
    """Return the index of each id in its bag."""
    return np.arange(int(lengths.sum())) - np.repeat(lengths.cumsum() - lengths, lengths)


def bags_of_firsts(table: Table, firsts: Ints, places: Ints) -> Ints:
    """Return the ids at indices `places` of bags with the first ids `firsts`.

    Index 0 has the first id itself. All other ids are uniform, and follow from the table's name, the first id and the
    index.
    """
    mixed = _mix(_mix(firsts + _as_signed(table_seed(table))) + places)
    return np.where(places == 0, firsts, (mixed.view(np.uint64) % np.uint64(table.rows)).astype(np.int64))


def draw_ids(generator: np.random.Generator, table: Table, count: int) -> Ints:
    """Draw `count` ids in [0, rows) from the table's `Ids`."""
    if table.ids.kind == "uniform" or table.ids.exponent == 0:
        return generator.integers(0, table.rows, count, dtype=np.int64)
    ranks = draw_zipf(generator, table.rows, table.ids.exponent, count)
    if table.ids.order == "by_frequency":
        return ranks
    return Shuffle.of(table)(ranks)


def draw_zipf(generator: np.random.Generator, size: int, exponent: float, count: int) -> Ints:
    """Draw `count` values of k in [0, size) with probability proportional to (k + 1) ** -exponent.

    Exact, by rejection-inversion: W. Hoermann, G. Derflinger, Rejection-inversion to generate variates from monotone
    discrete distributions, ACM TOMACS 6(3), 1996. Few draws are rejected, for any size.
    """
    below = _integral(1.5, exponent) - 1.0
    above = _integral(size + 0.5, exponent)
    sure = 2.0 - _inverse(_integral(2.5, exponent) - 2.0**-exponent, exponent)
    result = np.empty(count, dtype=np.int64)
    todo: Ints | slice = slice(None)
    left = count
    while left:
        height = generator.random(left)
        height *= below - above
        height += above
        x = _inverse(height, exponent)
        k = np.rint(x)
        np.maximum(np.minimum(k, size, out=k), 1, out=k)
        result[todo] = k
        doubtful = np.flatnonzero(k - x > sure)
        near = k[doubtful]
        rejected = doubtful[height[doubtful] < _integral(near + 0.5, exponent) - near**-exponent]
        todo = rejected if isinstance(todo, slice) else todo[rejected]
        left = rejected.size
    result -= 1
    return result


def draw_weights(
    scenario: Scenario, number: int, rank: int, step: int, ids: int, *, feature: int = 0
) -> npt.NDArray[np.float32]:
    """Draw the weight of each id's row in its bag, around 1: [ids]; arguments as in `draw_bags`."""
    tables = len(scenario.workload.tables)
    generator = np.random.default_rng([scenario.run.seed, rank, step, tables + 1 + number, *_further(feature)])
    return generator.random(ids, dtype=np.float32) + np.float32(0.5)


def _further(feature: int) -> tuple[int, ...]:
    """Return the extra part of a feature's seed: none for a table's first feature, else the feature's number."""
    return (feature,) if feature else ()


def draw_dense(scenario: Scenario, model: Model, rank: int, step: int, *, device: torch.device) -> Dense:
    """Draw normal features, and labels by a linear rule with noise, so that training can reduce the loss."""
    dtype: torch.dtype = getattr(torch, model.dtype)
    if device.type == "meta":
        shape = (scenario.run.batch_size, model.dense_features)
        return Dense(torch.empty(shape, dtype=dtype, device=device), torch.empty(shape[:1], device=device))
    generator = np.random.default_rng([scenario.run.seed, rank, step, len(model.tables)])
    features = generator.standard_normal((scenario.run.batch_size, model.dense_features), dtype=np.float32)
    noise = generator.standard_normal(scenario.run.batch_size, dtype=np.float32)
    rule = np.random.default_rng([scenario.run.seed]).standard_normal(model.dense_features, dtype=np.float32)
    with np.errstate(invalid="ignore"):  # all are finite, but OpenBLAS may flag lanes that it pads (numpy 24067)
        labels = (features @ rule + noise > 0).astype(np.float32)
    return Dense(torch.from_numpy(features).to(device, dtype), torch.from_numpy(labels).to(device))


def initial_rows(table: int, seed: int, rows: range, columns: range, *, device: torch.device) -> Tensor:
    """Return the initial values of a block of a table, [rows, columns] float32, uniform in (-0.05, 0.05).

    Each value depends only on its table, row and column, so that every sharding plan starts from one model. Values are
    drawn on the device, some rows at a time.
    """
    drawn = torch.empty(len(rows), len(columns), device=device)
    if device.type == "meta":
        return drawn
    base = _mix(np.full(1, _as_signed(seed * 0x9E3779B97F4A7C15 + table)))
    keys = torch.from_numpy(_mix(base + np.arange(rows.start, rows.stop))).to(device)
    numbers = torch.arange(columns.start, columns.stop, device=device)
    at_once = max(1, _DRAWN_AT_ONCE[device.type] // max(1, len(columns)))
    for into, of_rows in zip(drawn.split(at_once), keys.split(at_once), strict=True):
        into.copy_(_shift(_mix(of_rows[:, None] + numbers), 40))
        into.div_(1 << 24).sub_(0.5).mul_(0.1)
    return drawn


def _mix(value: Bits) -> Bits:
    """Mix 64 bits well: G. Steele et al., Fast splittable pseudorandom number generators, OOPSLA 2014.

    Numbers are int64, whose products wrap like unsigned ones.
    """
    mixed = value + _as_signed(0x9E3779B97F4A7C15)
    mixed = (mixed ^ _shift(mixed, 30)) * _as_signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shift(mixed, 27)) * _as_signed(0x94D049BB133111EB)
    return mixed ^ _shift(mixed, 31)


def _shift(value: Bits, by: int) -> Bits:
    """Shift right with zeros from the left, as unsigned numbers."""
    return (value >> by) & ((1 << (64 - by)) - 1)


def _as_signed(number: int) -> int:
    """Return the int64 with the number's lowest 64 bits."""
    return ((number + (1 << 63)) & _ALL_BITS) - (1 << 63)


def _integral(x: npt.NDArray[np.float64] | float, exponent: float) -> npt.NDArray[np.float64] | float:
    """Return the integral of t ** -exponent from 1 to x."""
    logarithm = np.log(x)
    if exponent == 1:
        return logarithm
    return np.expm1((1 - exponent) * logarithm) / (1 - exponent)


def _inverse(height: npt.NDArray[np.float64] | float, exponent: float) -> npt.NDArray[np.float64]:
    if exponent == 1:
        return np.asarray(np.exp(height))
    with np.errstate(divide="ignore"):  # for steep laws the far end rounds to infinity, which is clipped later
        return np.asarray(np.exp(np.log1p((1 - exponent) * height) / (1 - exponent)))


def _read_bags(table: Table, first: int, count: int) -> TableBatch:
    assert table.ids.path is not None
    offsets, ids = file_bags(table.ids.path)
    which = (first + np.arange(count)) % (len(offsets) - 1)
    lengths = offsets[which + 1] - offsets[which]
    starts = np.repeat(offsets[which] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    return TableBatch(lengths, ids[starts + np.arange(int(lengths.sum()))])


@cache
def file_bags(path: Path) -> tuple[Ints, Ints]:
    """Return offsets [bags + 1] and ids of a file that `load` has checked; int64."""
    bags = read_bags(path)
    offsets = np.concatenate([[0], np.cumsum([len(bag) for bag in bags])]).astype(np.int64)
    return offsets, np.array([item for bag in bags for item in bag], dtype=np.int64)
