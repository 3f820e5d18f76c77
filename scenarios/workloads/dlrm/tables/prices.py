"""The costs of a pass over one rank's embedding rows: lookup, gradient, update, and the filling of a cache.

Costs are those of one compiled pass over all tables (`embedding_cpu`; on GPUs fbgemm's table-batched embeddings).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

import torch

from scenarios.compute_kernel import DEFAULT_KERNEL, ComputeKernel
from scenarios.config.scenario import Optimizer
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.bags import LONG_RUN, Bags, BagsBackward, BagsForward, mix_bags
from scenarios.seam.operations.operation import Operation
from scenarios.sparse.expected import ExpectedJagged
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.tables.caching import KEY_BYTES, SORT_PASSES, RowCache
from scenarios.workloads.dlrm.tables.fbgemm_limits import optim_type
from scenarios.workloads.dlrm.tables.moments import STEP_FLOPS

# Expected features have the shapes of real ones; computations on them use meta tensors.
Features = KeyedJagged | ExpectedJagged

# The number of rows named more than `LONG_RUN` times, and the count of the most frequent one.
Runs = tuple[int, int]

# Bytes of a number of an optimizer's state.
STATE_BYTES = 4
# Bytes of the weight of an id's row in its bag.
WEIGHT_BYTES = 4
# Bytes of the index of an id's bag.
BAG_BYTES = 4


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


@dataclass(frozen=True, slots=True)
class _Touched:
    """The amounts that bags touch: ids, elements of named rows, elements of the output, lengths, and weights of ids.

    `hosted` elements are read from host memory. `id_bytes` and `length_bytes` are bytes of one number.
    """

    ids: float
    elements: float
    found: float
    lengths: float
    weights: float
    id_bytes: int
    length_bytes: int
    hosted: float

    @property
    def naming_bytes(self) -> float:
        """The bytes of ids, lengths and weights."""
        return self.id_bytes * self.ids + self.length_bytes * self.lengths + WEIGHT_BYTES * self.weights

    @property
    def ordering_bytes(self) -> float:
        """The bytes read, and as many written, to sort ids by row together with their bags and weights."""
        return ((SORT_PASSES + 1) * KEY_BYTES + BAG_BYTES) * self.ids + WEIGHT_BYTES * self.weights


class RowPrices:
    """The costs of passes over one rank's pieces, in the order of the keys of the features that name them.

    A lookup's output is [samples, sum of the keys' `dims`] in the dtype `travels_as`; for `unpooled` rows it is flat:
    each id's row, key by key. A gradient is laid out like its tensor.
    """

    def __init__(
        self,
        pieces: Sequence[PricedPiece],
        dtype: torch.dtype,
        *,
        optimizer: Optimizer,
        unpooled: bool = False,
        travels_as: torch.dtype | None = None,
        distinct: Callable[[int, range, Sequence[float]], float] | None = None,
        fetched: Callable[[int, range, Sequence[float], int], float] | None = None,
        cache: RowCache | None = None,
        sorts_all: bool = False,
        is_fbgemms: bool = False,
        runs: Callable[[int], Runs | None] = lambda _: None,
    ) -> None:
        """Store the pieces, whose rows are of `dtype`.

        Args:
            distinct: returns how many rows of a block the ids in it (by feature) name; None: as many as ids.
            fetched: returns how many such rows, of the given bytes each, a lookup reads from memory; None: one per id.
            cache: of the pieces that have one.
            sorts_all: all passes over gradients, even SGD's, sort ids first, as fbgemm's on GPUs.
            is_fbgemms: GPU kernels are fbgemm's, whose laws are known.
            runs: returns how often a table's most frequent rows are named, if known.
        """
        self.pieces, self.dtype, self.optimizer = tuple(pieces), dtype, optimizer
        self.unpooled, self.travels_as, self.cache = unpooled, travels_as or dtype, cache
        self._distinct, self._fetched = distinct, fetched
        self._is_fbgemms, self._runs = is_fbgemms, runs
        self._sorts_all, self._sorts = sorts_all, sorts_all or optimizer.kind != "sgd"
        self._of_keys = [piece for piece in pieces for _ in range(piece.keys)]
        self.dims = [len(piece.columns) for piece in self._of_keys]
        self.elements = sum(piece.elements for piece in pieces)
        self._element_bytes = dtype.itemsize

    def look_up_kernel(self, features: Features) -> Kernel:
        """Return the kernel of a lookup, which reads ids and rows, and writes a row for each bag or unpooled id."""
        touched, size = self._count_touched(features), self._element_bytes
        return self._kernel(
            "embedding_lookup",
            flops=touched.elements,
            bytes_read=touched.naming_bytes + size * (touched.elements - touched.hosted),
            bytes_written=self.travels_as.itemsize * touched.found,
            bytes_reread=self._reread(features),
            host_read=size * touched.hosted,
            operations=() if (bags := self._bags(features)) is None else (BagsForward(bags=bags),),
        )

    def _bags(self, features: Features) -> Bags | None:
        """Describe the bags of one pass for fbgemm's laws; None if rows are not on the GPU, or there are no ids."""
        if not (self._is_fbgemms and self.pieces) or any(piece.kernel.is_in_host for piece in self.pieces):
            return None
        samples, parts = samples_of(features), []
        for piece, counts in zip(self.pieces, self._ids_of_pieces(features), strict=True):
            count, unique = round(sum(counts)), self._count_named_rows(piece, counts)
            long_runs, longest = self._runs(piece.table) or _equal_runs(count, unique)
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
                    weight_dtype=_name(self.dtype),
                    output_dtype=_name(self.travels_as),
                    pooled=not self.unpooled,
                    weighted=features.weights is not None,
                )
            )
        every = mix_bags(parts)
        return every if every.ids else None

    def _backward(self, features: Features, optimizer: str) -> tuple[Operation, ...]:
        bags = self._bags(features) if self._sorts else None
        return () if bags is None else (BagsBackward(bags=bags, optimizer=optimizer),)

    def _reread(self, features: Features) -> float:
        """Return the bytes of rows that a lookup finds in the device's L2."""
        if self._fetched is None:
            return 0.0
        reread = 0.0
        for piece, ids in zip(self.pieces, self._ids_of_pieces(features), strict=True):
            if not piece.kernel.reads_host:
                row_bytes = self._element_bytes * len(piece.columns)
                reread += row_bytes * (sum(ids) - self._fetched(piece.table, piece.rows, ids, row_bytes))
        return reread

    def fill_kernel(self, features: Features) -> Kernel:
        """Return the kernel that fetches the rows that bags name and the cache misses."""
        assert self.cache is not None, "some pieces have a cache"
        pieces = zip(self.pieces, self._ids_of_pieces(features), strict=True)
        ids = [counts for piece, counts in pieces if piece.kernel.is_cached]
        return self.cache.fill_kernel(ids, _name(self.dtype))

    def update_kernel(self, features: Features) -> Kernel:
        """Return the kernel of an update, which reads ids' gradients, and reads and writes rows; once each if sorted.

        SGD on CPUs does not sort them.
        """
        touched, size = self._count_touched(features), self._element_bytes
        read = touched.naming_bytes + self.travels_as.itemsize * touched.elements
        ordering, moved = 0.0, touched.elements
        rows, hosted = size * (touched.elements - touched.hosted), size * touched.hosted
        if self._sorts:
            ordering, rows, hosted, moved = touched.ordering_bytes, 0.0, 0.0, 0.0
            for piece, ids in zip(self.pieces, self._ids_of_pieces(features), strict=True):
                dim = len(piece.columns)
                named, of_row = self._count_named_rows(piece, ids), self._row_bytes(piece, dim)
                rows, hosted, moved = rows + named * of_row[0], hosted + named * of_row[1], moved + named * dim
        return self._kernel(
            "embedding_update",
            flops=self._update_flops(touched.elements, moved),
            bytes_read=read + ordering + rows,
            bytes_written=rows + ordering,
            host_read=hosted,
            host_written=hosted,
            operations=self._backward(features, optim_type(self.optimizer).lower().removeprefix("exact_")),
        )

    def _row_bytes(self, piece: PricedPiece, dim: int) -> tuple[int, int]:
        """Return the bytes of a row with its state, on the device and in host memory.

        State for each element lies in host memory with its table, not in the cache; state for each row stays on the
        device, as in fbgemm 1.x (`construct_split_state`).
        """
        weights, state = self._element_bytes * dim, self.optimizer.state_bytes(dim)
        hosted = weights if piece.kernel.reads_host else 0
        if piece.kernel.is_in_host:
            hosted += STATE_BYTES * self.optimizer.element_numbers * dim
        return weights + state - hosted, hosted

    def _update_flops(self, summed: float, moved: float) -> float:
        """Return the FLOPs for `summed` elements of gradients and `moved` elements of rows."""
        if self.optimizer.has_moments:
            return summed + STEP_FLOPS[self.optimizer.kind] * moved
        return (2 if self.optimizer.kind == "sgd" else 5) * summed

    def _count_named_rows(self, piece: PricedPiece, ids: Sequence[float]) -> float:
        return sum(ids) if self._distinct is None else self._distinct(piece.table, piece.rows, ids)

    def _ids_of_pieces(self, features: Features) -> list[list[float]]:
        """Return the number of ids that name each piece, key by key."""
        per_key = iter(features.length_per_key())
        return [[float(next(per_key)) for _ in range(piece.keys)] for piece in self.pieces]

    def dense_gradients_kernel(self, features: Features) -> Kernel:
        """Return the kernel that adds ids' gradients to zeros laid out as the weights; if sorted, once for each row."""
        touched, size = self._count_touched(features), self._element_bytes
        read, written = self.travels_as.itemsize * touched.elements, float(size * self.elements)
        if self._sorts_all:
            named = zip(self.pieces, self._ids_of_pieces(features), strict=True)
            rows = sum(len(piece.columns) * self._count_named_rows(piece, ids) for piece, ids in named)
            read, written = read + touched.ordering_bytes, written + touched.ordering_bytes + size * rows
        else:
            read, written = read + size * touched.elements, written + size * touched.elements
        return self._kernel(
            "embedding_update",
            flops=touched.elements,
            bytes_read=touched.naming_bytes + read,
            bytes_written=written,
            launches=2,
            operations=self._backward(features, "none"),
        )

    def dense_update_kernel(self) -> Kernel:
        """Return the kernel of an optimizer step on all rows: reads gradients; reads and writes rows and state."""
        elements, size = self.elements, self._element_bytes
        state = float(sum(len(piece.rows) * self.optimizer.state_bytes(len(piece.columns)) for piece in self.pieces))
        flops = STEP_FLOPS.get(self.optimizer.kind, 2 if self.optimizer.kind == "sgd" else 5) * elements
        return self._kernel(
            "optimizer", flops=flops, bytes_read=2 * size * elements + state, bytes_written=size * elements + state
        )

    def _kernel(
        self, kind: str, *, launches: int = 1, operations: tuple[Operation, ...] = (), **amounts: float
    ) -> Kernel:
        """Return the kernel of a pass over all pieces; without pieces it has no launches."""
        floats: dict[str, Any] = {name: float(amount) for name, amount in amounts.items()}
        launches = launches if self.pieces else 0
        return Kernel(kind=kind, dtype=_name(self.dtype), launches=launches, operations=operations, **floats)

    def _count_touched(self, features: Features) -> _Touched:
        per_key, bags = features.length_per_key(), _bags_of(features)
        ids = float(sum(per_key))
        by_key = [ids * dim for ids, dim in zip(per_key, self.dims, strict=True)]
        elements = float(sum(by_key))
        hosted = [size for size, piece in zip(by_key, self._of_keys, strict=True) if piece.kernel.reads_host]
        return _Touched(
            ids=ids,
            elements=elements,
            found=elements if self.unpooled else float(sum(map(mul, bags, self.dims))),
            lengths=float(sum(bags)),
            weights=0.0 if features.weights is None else ids,
            id_bytes=features.values.element_size(),
            length_bytes=features.lengths.element_size(),
            hosted=float(sum(hosted)),
        )

    def found_shape(self, features: Features) -> tuple[int, ...]:
        """Return the shape of a lookup's output."""
        if self.unpooled:
            return (round(self._count_touched(features).found),)
        return samples_of(features), sum(self.dims)


def _equal_runs(ids: int, named: float) -> Runs:
    """Return the runs of rows that are named equally often."""
    mean = ids / named if named else 0.0
    return (round(named) if mean > LONG_RUN else 0), max(1, round(mean + 3 * mean**0.5))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def samples_of(features: Features) -> int:
    """Return the number of samples of every key, or the mean over keys if batches differ."""
    bags = _bags_of(features)
    return features.stride if features.stride is not None else round(sum(bags) / len(bags))


def _bags_of(features: Features) -> tuple[int, ...]:
    """Return the number of samples of each key."""
    if isinstance(features, KeyedJagged):
        return features.stride_per_key
    return (features.stride,) * len(features.length_per_key())


def sizes_of(features: Features) -> Features:
    """Return the features with sizes only, for later pricing, so that no GPU memory is held until then."""
    return features.sizes_only() if isinstance(features, KeyedJagged) and features.values.is_cuda else features
