"""fbgemm's table-batched embeddings as pure data: the lookup, and the backward pass with its fused optimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scenarios.seam.operations.operation import DescribedOperator, Words, about

# Longer runs of equal ids are summed by whole blocks (fbgemm: a warp's segment has at most 32).
LONG_RUN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Bags:
    """The ids of one call for `tables` tables of `rows` rows of `dim` elements each, `bags` bags a table.

    If tables differ, `rows` and `bags` are means and `dim` is the mean weighted by ids (`mix_bags`).

    Attributes:
        ids: number of ids of all tables.
        unique: number of distinct rows, counted table by table and summed.
        long_runs: number of rows that occur more than 32 times.
        longest: occurrences of the most frequent row.
        pooled: one result per bag; else (nobag, sequences) one per id.
        weighted: each id has a weight.
    """

    tables: int
    rows: int
    dim: int
    bags: int
    ids: int
    unique: int
    long_runs: int = 0
    longest: int = 1
    weight_dtype: str = "float32"
    output_dtype: str = "float32"
    pooled: bool = True
    weighted: bool = False

    def words(self) -> str:
        """Return tables and ids in a few words."""
        tables = f"{self.tables} table{'' if self.tables == 1 else 's'} of {self.rows}x{self.dim}"
        ids = f"{about(self.ids)} ids{f' in {self.bags} bags each' if self.pooled else ' as sequences'}"
        return f"{tables}, {ids}, {self.weight_dtype}{', weighted' if self.weighted else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagsForward(DescribedOperator):
    """A lookup of `bags`; `checks_bounds`: preceded by the kernel that checks all ids, fbgemm's default."""

    bags: Bags
    checks_bounds: bool = True

    def words(self) -> Words:
        return "table-batched embeddings", self.bags.words()


@dataclass(frozen=True, slots=True, kw_only=True)
class BagsBackward(DescribedOperator):
    """A backward pass of `bags` that updates the rows looked up; `optimizer` is fbgemm's name in lower case.

    ("sgd", "rowwise_adagrad", "adagrad", "adam", "partial_rowwise_adam", "lamb", "none", ...)
    """

    bags: Bags
    optimizer: str = "rowwise_adagrad"

    def words(self) -> Words:
        return f"table-batched embeddings backward, {self.optimizer}", self.bags.words()


def uniform(
    *, tables: int, rows: int, dim: int, bags: int, length: int, weight_dtype: str = "float32", pooled: bool = True
) -> Bags:
    """Return bags of `length` ids each, drawn uniformly; the numbers of runs are expected values."""
    drawn = bags * length
    unique = max(1, round(rows * -_expm1_of(drawn, rows)))
    mean = drawn / rows
    is_long = mean > LONG_RUN
    return Bags(
        tables=tables,
        rows=rows,
        dim=dim,
        bags=bags,
        ids=tables * drawn,
        unique=tables * unique,
        long_runs=tables * rows if is_long else 0,
        longest=max(1, round(mean + 3 * mean**0.5)),
        weight_dtype=weight_dtype,
        pooled=pooled,
    )


def mix_bags(parts: Sequence[Bags]) -> Bags:
    """Return one call's ids for all tables of `parts`, which share dtypes, pooling and weights."""
    tables, ids = sum(part.tables for part in parts), sum(part.ids for part in parts)
    return replace(
        parts[0],
        tables=tables,
        rows=max(1, sum(part.tables * part.rows for part in parts) // tables),
        dim=max(1, round(sum(part.ids * part.dim for part in parts) / max(1, ids))),
        bags=max(1, sum(part.tables * part.bags for part in parts) // tables),
        ids=ids,
        unique=sum(part.unique for part in parts),
        long_runs=sum(part.long_runs for part in parts),
        longest=max(part.longest for part in parts),
    )


def _expm1_of(drawn: int, rows: int) -> float:
    """Return (1 - 1 / rows) ** drawn - 1 without cancellation."""
    return math.expm1(drawn * math.log1p(-1 / rows)) if rows > 1 else -1.0
