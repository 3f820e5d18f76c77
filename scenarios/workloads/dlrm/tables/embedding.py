"""One rank's embedding rows: look-up, pooled or not, gradient and update, with their costs.

The costs are those of one compiled pass over all tables (`embedding_cpu`; on GPUs fbgemm's table-batched embeddings).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from scenarios.config.scenario import LookUpKernel, Optimizer
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.bags import Bags, BagsBackward, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.sparse.expected import ExpectedJagged
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.batches import initial_rows
from scenarios.workloads.dlrm.tables import embedding_torch
from scenarios.workloads.dlrm.tables.caching import RowCache
from scenarios.workloads.dlrm.tables.described import Runs, bags_of, fbgemms_name
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, Storage
from scenarios.workloads.dlrm.tables.moments import STEP_FLOPS, Moments
from scenarios.workloads.dlrm.tables.sorting import KEY_BYTES, SORT_PASSES

# Expected ones have the shapes of real ones: what is computed on them is on meta.
Features = KeyedJagged | ExpectedJagged

# Of a number of an optimizer's state.
STATE_BYTES = 4
# What an id's row counts in its bag.
WEIGHT_BYTES = 4
# The number of an id's bag.
BAG_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of one table: `table` is its number in the model, `kernel` says in which memory its rows are priced.

    So many `keys` of features, one behind the other, name its rows: those of the table's features.
    """

    table: int
    rows: range
    columns: range
    kernel: LookUpKernel = "fused"
    keys: int = 1


@dataclass(frozen=True, slots=True)
class _Touched:
    """What bags name: ids, elements of their rows, and elements of what is looked up; `weights` are of ids.

    `hosted` of the elements are read from the host's memory. `id_bytes` and `length_bytes` are those of one.
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
        """Bytes of ids, lengths and weights."""
        return self.id_bytes * self.ids + self.length_bytes * self.lengths + WEIGHT_BYTES * self.weights

    @property
    def ordering_bytes(self) -> float:
        """Bytes read, and as many written, until ids of a row are one behind the other, with their bags and weights."""
        return ((SORT_PASSES + 1) * KEY_BYTES + BAG_BYTES) * self.ids + WEIGHT_BYTES * self.weights


class Rows:
    """The pieces that one rank holds, in the order of the keys of the features that it looks up.

    `flat` has all their rows, `weights` are its parts by piece, [rows, columns]. `states` are what the optimizer keeps,
    by name, all float32: Adagrad the sum of mean squares of each row's gradients, Adam and LAMB `Moments`, SGD nothing.

    What is looked up is [samples, sum of the keys' dims], in the dtype that it `travels_as`; of `unpooled` rows it is
    flat: each id's row, key by key. A gradient is laid out as what it is of.

    Rows are whole on the device wherever they would lie: `kernel` and `cache` only say what a prediction charges.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        seed: int,
        device: torch.device,
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
        """`distinct` says how many of a table's rows so many ids, by feature, name that fall into them; without it, as
        many.

        `fetched` says how many such rows, of so many bytes each, a look-up reads from memory; without it, one an id.

        `is_fbgemms`: kernels on a GPU are those of fbgemm, whose laws are known. `runs` says how often
        a table's most frequent rows are named, where that is known.

        `sorts_all`: whatever is made of gradients, SGD too, has their ids in order before, as fbgemm has it on GPUs.
        """
        self.pieces, self._unpooled, self._travels_as = tuple(pieces), unpooled, travels_as or dtype
        self._distinct, self._fetched, self._cache = distinct, fetched, cache
        self._is_fbgemms, self._runs = is_fbgemms, runs
        self._sorts_all, self._sorts = sorts_all, sorts_all or optimizer.kind != "sgd"
        sizes = [(len(piece.rows), len(piece.columns), piece.keys) for piece in pieces]
        places = Places.of(*([size[part] for size in sizes] for part in range(3)))
        rows, self._dims = places.rows.tolist(), places.key_dims.tolist()
        self._of_keys = [pieces[number] for number in places.pieces.tolist()]
        self.flat = torch.empty(sum(map(_numel, pieces)), dtype=dtype, device=device)
        self.weights = [
            part.view(len(piece.rows), len(piece.columns))
            for piece, part in zip(pieces, self.flat.split_with_sizes([_numel(piece) for piece in pieces]), strict=True)
        ]
        for piece, weight in zip(pieces, self.weights, strict=True):
            weight.copy_(initial_rows(piece.table, seed, piece.rows, piece.columns, device=device))
        self._optimizer = optimizer
        by_element = optimizer.state == "element"
        states = self.flat.numel() if by_element else sum(rows)
        squares = torch.zeros(states if optimizer.kind == "adagrad" else 0, device=device)
        self._storage = Storage(self.flat, places, squares, by_element, optimizer.epsilon)
        self._moments = Moments(optimizer, self.flat, places) if optimizer.has_moments else None
        self.states = {"state": squares} if optimizer.kind == "adagrad" else {}
        if self._moments is not None:
            self.states = {"means": self._moments.means, "squares": self._moments.squares}
        self._dtype, self._element_bytes = dtype, dtype.itemsize
        self._kernels = kernels_of(device)
        self._kernels.load(dtype, self._travels_as)

    def look_up(self, features: Features) -> Tensor:
        """The sum of each bag's rows, times their weights where there are some: columns in key order."""
        samples = _samples(features)
        if features.values.is_meta or not self.pieces:
            shape = (round(self._touched(features).found),) if self._unpooled else (samples, sum(self._dims))
            return features.values.new_empty(shape, dtype=self._travels_as)
        found: Tensor = self._kernels.look_up(self._storage, self._named(features), samples, self._travels_as)
        return found

    def update(self, features: Features, gradient: Tensor) -> None:
        """One optimizer step on the rows that were looked up."""
        if features.values.is_meta or not self.pieces:
            return
        rate = self._optimizer.learning_rate
        if self._moments is not None:
            self._moments.update(self._named(features), gradient)
        elif self._optimizer.kind == "sgd":
            self._kernels.add(self._storage, self._named(features), gradient, -rate)
        else:
            self._kernels.adagrad(self._storage, self._named(features), gradient, rate)

    def dense_gradients(self, features: Features, gradient: Tensor) -> Tensor:
        """The gradients of all pieces' weights in one flat tensor, for tables that every rank has a copy of."""
        if features.values.is_meta:
            return gradient.new_empty(self.flat.numel(), dtype=self._dtype)
        total = torch.zeros_like(self.flat)
        self._kernels.add(self._storage._replace(weights=total), self._named(features), gradient, 1.0)
        return total

    @property
    def state_pieces(self) -> list[Tensor]:
        """`states` by piece, flat."""
        rows = self._storage.places.rows
        found: list[Tensor] = []
        for state in self.states.values():
            sizes = rows * self._storage.places.dims if state.numel() == self.flat.numel() else rows
            found += state.split_with_sizes(sizes.tolist())
        return found

    def update_dense(self, gradients: Tensor) -> None:
        """One optimizer step on all rows, from what `dense_gradients` gave, in whatever precision it was summed."""
        if gradients.is_meta:
            return
        gradients = gradients.to(self._dtype)
        rate = self._optimizer.learning_rate
        if self._moments is not None:
            self._moments.update_all(gradients)
        elif self._optimizer.kind == "sgd":
            self.flat.sub_(gradients, alpha=rate)
        else:
            self._kernels.adagrad_all(self._storage, gradients, rate)

    def look_up_kernel(self, features: Features) -> Kernel:
        """Ids and one row for each are read, one row for each bag is written, or for each id."""
        touched, size = self._touched(features), self._element_bytes
        return self._kernel(
            "embedding_lookup",
            flops=touched.elements,
            read=touched.naming_bytes + size * (touched.elements - touched.hosted),
            written=self._travels_as.itemsize * touched.found,
            reread=self._reread(features),
            host_read=size * touched.hosted,
            operations=() if (bags := self._bags(features)) is None else (BagsForward(bags=bags),),
        )

    def _bags(self, features: Features) -> Bags | None:
        """Describe the bags of one pass; None where not all rows are on the GPU, or its kernels are not fbgemm's."""
        if not self._is_fbgemms:
            return None
        return bags_of(
            self.pieces,
            self._ids_of_pieces(features),
            samples=_samples(features),
            named=self._rows_named,
            runs=self._runs,
            dtype=self._dtype,
            result=self._travels_as,
            is_pooled=not self._unpooled,
            is_weighted=features.weights is not None,
        )

    def _backward(self, features: Features, optimizer: str) -> tuple[Operation, ...]:
        bags = self._bags(features) if self._sorts else None
        return () if bags is None else (BagsBackward(bags=bags, optimizer=optimizer),)

    def _reread(self, features: Features) -> float:
        """Bytes of rows that a look-up finds in the device's L2."""
        if self._fetched is None:
            return 0.0
        reread = 0.0
        for piece, ids in zip(self.pieces, self._ids_of_pieces(features), strict=True):
            if piece.kernel != "fused_uvm":
                row_bytes = self._element_bytes * len(piece.columns)
                reread += row_bytes * (sum(ids) - self._fetched(piece.table, piece.rows, ids, row_bytes))
        return reread

    def fill_kernel(self, features: Features) -> Kernel | None:
        """The cache is given what it misses of the rows that bags name; None without a cache."""
        if self._cache is None:
            return None
        pieces = zip(self.pieces, self._ids_of_pieces(features), strict=True)
        ids = [counts for piece, counts in pieces if piece.kernel == "fused_uvm_caching"]
        return self._cache.fill_kernel(ids, str(self._dtype).removeprefix("torch."))

    def update_kernel(self, features: Features) -> Kernel:
        """Each id's gradient is read, and its row read and written: once for all ids that name it, if these are sorted.

        SGD on CPUs does not sort them.
        """
        touched, size = self._touched(features), self._element_bytes
        read = touched.naming_bytes + self._travels_as.itemsize * touched.elements
        ordering, moved = 0.0, touched.elements
        rows, hosted = size * (touched.elements - touched.hosted), size * touched.hosted
        if self._sorts:
            ordering, rows, hosted, moved = touched.ordering_bytes, 0.0, 0.0, 0.0
            for piece, ids in zip(self.pieces, self._ids_of_pieces(features), strict=True):
                dim = len(piece.columns)
                named, of_row = self._rows_named(piece, ids), self._row_bytes(piece, dim)
                rows, hosted, moved = rows + named * of_row[0], hosted + named * of_row[1], moved + named * dim
        return self._kernel(
            "embedding_update",
            flops=self._update_flops(touched.elements, moved),
            read=read + ordering + rows,
            written=rows + ordering,
            host_read=hosted,
            host_written=hosted,
            operations=self._backward(features, fbgemms_name(self._optimizer)),
        )

    def _row_bytes(self, piece: Piece, dim: int) -> tuple[int, int]:
        """Bytes of a row and its state on the device, and in the host's memory.

        State for each element is there with its table, and not in the cache; that for each row stays on the device, as
        in fbgemm 1.x (`construct_split_state`).
        """
        weights, state = self._element_bytes * dim, self._optimizer.state_bytes(dim)
        hosted = weights if piece.kernel == "fused_uvm" else 0
        if piece.kernel != "fused":
            hosted += STATE_BYTES * self._optimizer.element_numbers * dim
        return weights + state - hosted, hosted

    def _update_flops(self, summed: float, moved: float) -> float:
        """Of so many elements of gradients that are summed, and of rows that move."""
        if self._optimizer.has_moments:
            return summed + STEP_FLOPS[self._optimizer.kind] * moved
        return (2 if self._optimizer.kind == "sgd" else 5) * summed

    def _rows_named(self, piece: Piece, ids: Sequence[float]) -> float:
        return sum(ids) if self._distinct is None else self._distinct(piece.table, piece.rows, ids)

    def _ids_of_pieces(self, features: Features) -> list[list[float]]:
        """How many ids name each piece, key by key."""
        per_key = iter(features.length_per_key())
        return [[float(next(per_key)) for _ in range(piece.keys)] for piece in self.pieces]

    def dense_gradients_kernel(self, features: Features) -> Kernel:
        """Each id's gradient is added to one of as many zeros as there are weights; where ids are sorted each row is
        written once.
        """
        touched, size = self._touched(features), self._element_bytes
        read, written = self._travels_as.itemsize * touched.elements, float(size * self.flat.numel())
        if self._sorts_all:
            named = zip(self.pieces, self._ids_of_pieces(features), strict=True)
            rows = sum(len(piece.columns) * self._rows_named(piece, ids) for piece, ids in named)
            read, written = read + touched.ordering_bytes, written + touched.ordering_bytes + size * rows
        else:
            read, written = read + size * touched.elements, written + size * touched.elements
        return self._kernel(
            "embedding_update",
            flops=touched.elements,
            read=touched.naming_bytes + read,
            written=written,
            launches=2,
            operations=self._backward(features, "none"),
        )

    def dense_update_kernel(self) -> Kernel:
        """Every row, its gradient and its state are read, and all but the gradient written."""
        elements, size = self.flat.numel(), self._element_bytes
        state = float(STATE_BYTES * sum(each.numel() for each in self.states.values()))
        flops = STEP_FLOPS.get(self._optimizer.kind, 5 if self.states else 2) * elements
        return self._kernel("optimizer", flops=flops, read=2 * size * elements + state, written=size * elements + state)

    def _kernel(
        self,
        kind: str,
        *,
        flops: float,
        read: float,
        written: float,
        reread: float = 0.0,
        host_read: float = 0.0,
        host_written: float = 0.0,
        launches: int = 1,
        operations: tuple[Operation, ...] = (),
    ) -> Kernel:
        """One pass over all pieces, or so many; nothing where there are none."""
        return Kernel(
            kind=kind,
            flops=float(flops),
            bytes_read=float(read),
            bytes_written=float(written),
            bytes_reread=float(reread),
            host_read=float(host_read),
            host_written=float(host_written),
            dtype=str(self._dtype).removeprefix("torch."),
            launches=launches if self.pieces else 0,
            operations=operations,
        )

    def _touched(self, features: Features) -> _Touched:
        per_key, samples = features.length_per_key(), _samples(features)
        ids = float(sum(per_key))
        by_key = [ids * dim for ids, dim in zip(per_key, self._dims, strict=True)]
        elements = float(sum(by_key))
        hosted = [size for size, piece in zip(by_key, self._of_keys, strict=True) if piece.kernel == "fused_uvm"]
        return _Touched(
            ids=ids,
            elements=elements,
            found=elements if self._unpooled else float(samples * sum(self._dims)),
            lengths=float(samples * len(self._dims)),
            weights=0.0 if features.weights is None else ids,
            id_bytes=features.values.element_size(),
            length_bytes=features.lengths.element_size(),
            hosted=float(sum(hosted)),
        )

    def _named(self, features: Features) -> Named:
        return Named(features.values, features.lengths, features.weights, self._unpooled)


def _numel(piece: Piece) -> int:
    return len(piece.rows) * len(piece.columns)


def kernels_of(device: torch.device) -> ModuleType:
    """What looks rows up and changes them there."""
    if device.type != "cpu":
        return embedding_torch
    from scenarios.workloads.dlrm.tables import embedding_cpu  # noqa: PLC0415  (loads numba, which takes a while)

    return embedding_cpu


def _samples(features: Features) -> int:
    assert features.stride is not None, "every key has the same samples"
    return features.stride
