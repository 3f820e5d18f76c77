"""Describes a pass over a rank's tables for the laws of fbgemm's table-batched embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from scenarios.compute_kernel import DEFAULT_KERNEL, ComputeKernel
from scenarios.config.scenario import Optimizer
from scenarios.seam.operations.bags import LONG_RUN, Bags, mix_bags
from scenarios.workloads.dlrm.tables.fbgemm_limits import optim_type

# The number of rows named more than `LONG_RUN` times, and the count of the most frequent one.
Runs = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPiece:
    """A piece of one table: `table` is its number in the model, `kernel` decides the memory in which rows are priced.

    `keys` consecutive keys, those of the table's features, name its rows.
    """

    table: int
    rows: range
    columns: range
    kernel: ComputeKernel = DEFAULT_KERNEL
    keys: int = 1

    @property
    def elements(self) -> int:
        """The number of elements: rows times columns."""
        return len(self.rows) * len(self.columns)


def bags_of(
    pieces: Sequence[PricedPiece],
    ids: Sequence[Sequence[float]],
    *,
    samples: int,
    named: Callable[[PricedPiece, Sequence[float]], float],
    runs: Callable[[int], Runs | None] = lambda _: None,
    dtype: torch.dtype,
    result: torch.dtype,
    is_pooled: bool,
    is_weighted: bool,
) -> Bags | None:
    """Return the bags of all pieces; None if any rows are not on the GPU.

    Args:
        ids: numbers by piece and key.
        named: returns how many of a piece's rows these ids name.
        runs: returns a table's `Runs` if known; otherwise all rows are named equally often.
    """
    if not pieces or any(piece.kernel.is_in_host for piece in pieces) or not samples:
        return None
    parts = []
    for piece, counts in zip(pieces, ids, strict=True):
        count, unique = round(sum(counts)), named(piece, counts)
        long_runs, longest = runs(piece.table) or _alike(count, unique)
        parts.append(
            Bags(
                tables=len(counts),
                rows=len(piece.rows),
                dim=len(piece.columns),
                bags=samples,
                ids=count,
                unique=max(round(unique), 1 if count else 0),
                long_runs=long_runs,
                longest=longest,
                weight_dtype=_name(dtype),
                output_dtype=_name(result),
                pooled=is_pooled,
                weighted=is_weighted,
            )
        )
    every = mix_bags(parts)
    return every if every.ids else None


def fbgemms_name(optimizer: Optimizer) -> str:
    """Return fbgemm's name of an optimizer, in lower case and without EXACT."""
    return optim_type(optimizer).lower().removeprefix("exact_")


def _alike(ids: int, named: float) -> Runs:
    mean = ids / named if named else 0.0
    return (round(named) if mean > LONG_RUN else 0), max(1, round(mean + 3 * mean**0.5))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
