"""fbgemm's table-batched embedding bags on a simulated GPU: each pass through them is one kernel.

The price follows from the ids, the dims of the tables and the optimizer, as in program `dlrm`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import expm1, log1p
from operator import mul
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from scenarios.compute_kernel import SCENARIO_KERNELS
from scenarios.config.scenario import Optimizer, Table
from scenarios.config.scenario.recommender import Feature
from scenarios.seam.operations.bags import LONG_RUN
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.tables.caching import CachedPiece, RowCache
from scenarios.workloads.dlrm.tables.fbgemm_limits import OPTIMIZERS
from scenarios.workloads.dlrm.tables.prices import PricedPiece, RowPrices, Runs, samples_of
from scenarios.workloads.script.gpu.imported import change_imported
from scenarios.workloads.script.gpu.values.jagged import complete_fbgemm
from scenarios.workloads.script.host.calls import passes_through
from scenarios.workloads.script.process.simulated import SimulatedLink

# Compute kernels by fbgemm's names of a table's location.
_KERNELS = {kernel.fbgemm_location: kernel for kernel in SCENARIO_KERNELS}
# Per table: number of distinct rows, of rows with more than LONG_RUN ids, and the most ids of one row; empty if the ids
# are unknown.
Named = dict[int, tuple[int, int, int]]
_BATCHES = "batch_size_per_feature_per_rank"


class BagsOnGpu:
    """Changes of fbgemm's modules: its bags are priced, and its operators completed."""

    def __init__(self, link: SimulatedLink, l2_bytes: float) -> None:
        self._link, self._l2_bytes = link, l2_bytes
        self.changes: dict[str, Callable[[ModuleType], None]] = {
            "fbgemm_gpu.split_table_batched_embeddings_ops_training": self._change_bags,
            "fbgemm_gpu.permute_pooled_embedding_modules_split": self._change_permuting,
            "fbgemm_gpu.sparse_ops": lambda _: complete_fbgemm(),
        }

    def _change_bags(self, module: ModuleType) -> None:
        for name in ("SplitTableBatchedEmbeddingBagsCodegen", "DenseTableBatchedEmbeddingBagsCodegen"):
            self._change(getattr(module, name))

    def _change(self, kind: Any) -> None:
        begin = kind.__init__

        def make(bags: Any, embedding_specs: Any, feature_table_map: Any = None, *args: Any, **more: Any) -> None:
            begin(bags, embedding_specs, feature_table_map, *args, **more)
            # Dense bags do not store it.
            bags.feature_table_map = list(feature_table_map or range(len(embedding_specs)))

        if "Dense" in kind.__name__:
            kind.__init__ = make
        usual, priced = kind.forward, WeakKeyDictionary[Any, _ModuleBags]()

        def of(bags: Any) -> _ModuleBags:
            if bags not in priced:
                priced[bags] = _ModuleBags(bags, self._link, self._l2_bytes)
            return priced[bags]

        @passes_through
        def forward(bags: Any, indices: Tensor, offsets: Tensor, *args: Any, **more: Any) -> Tensor:
            if not indices.is_cuda:
                found: Tensor = usual(bags, indices, offsets, *args, **more)
                return found
            weights = args[0] if args else more.get("per_sample_weights")
            return of(bags).look_up(bags, indices, offsets, weights, more.get(_BATCHES))

        kind.forward = forward
        if not hasattr(kind, "prefetch"):
            return
        usual_prefetch = kind.prefetch

        def prefetch(
            bags: Any,
            indices: Tensor,
            offsets: Tensor,
            forward_stream: Any = None,
            batch_size_per_feature_per_rank: Sequence[Sequence[int]] | None = None,
        ) -> None:
            batches = batch_size_per_feature_per_rank
            if not indices.is_cuda:
                usual_prefetch(bags, indices, offsets, forward_stream, batches)
                return
            of(bags).fill_ahead(indices, offsets, batches, is_beside=forward_stream is not None)

        kind.prefetch = prefetch
        kind._update_cache_counter_and_locations = lambda bags, *_: of(bags).wait_for_fills()
        kind.flush = lambda _: None  # writing rows back is part of checkpoints, which are not predicted

    def _change_permuting(self, module: ModuleType) -> None:
        """Replace the permutation of pooled embeddings: fbgemm's operator has no gradient on meta tensors."""
        known = self._link.values_of

        @passes_through
        def forward(permute: Any, pooled_embs: Tensor) -> Tensor:
            places, order = known(permute._offset_dim_list), known(permute._permute)
            assert places is not None, "integers are known"
            assert order is not None, "integers are known"
            parts = pooled_embs.split_with_sizes(places.diff().tolist(), 1)
            return torch.cat([parts[index] for index in order.tolist()], 1)

        module.PermutePooledEmbeddingsSplit.forward = forward


def watch_bags(link: SimulatedLink, l2_bytes: float) -> None:
    """Price lookups and updates of fbgemm's table-batched embeddings, once the process imports fbgemm or if it has."""
    change_imported(BagsOnGpu(link, l2_bytes).changes)


class _ModuleBags:
    """The embedding bags of one module."""

    def __init__(self, module: Any, link: SimulatedLink, l2_bytes: float) -> None:
        self._specs, self._link, self._l2_bytes = module.embedding_specs, link, l2_bytes
        self.is_dense = not hasattr(module, "optimizer")
        self._unpooled = module.pooling_mode.name == "NONE"
        self._tables = list(map(int, module.feature_table_map))
        self._dims = [self._specs[table][1] for table in self._tables]
        precision = type(module.weights_precision)
        self.dtype: torch.dtype = precision.from_int(module.output_dtype).as_dtype()
        self._named: dict[int, int] = {}  # by table, distinct rows in the pass that is being priced
        self._named_often: dict[int, Runs] = {}
        self._filled_ahead = 0  # how many coming passes have a filled cache
        self._fills_on: torch.cuda.Stream | None = None  # a stream for fills, if not that of passes
        cached = [spec[0] for spec in self._specs if _location(spec) == "MANAGED_CACHING"]
        self._load_factor = module.lxu_cache_weights.shape[0] / sum(cached) if cached else 0.0
        with _by_itself(link):
            self._prices = RowPrices(
                [self._piece(table) for table in dict.fromkeys(self._tables)],
                dtype=module.weights_precision.as_dtype(),
                optimizer=_optimizer(module),
                unpooled=self._unpooled,
                travels_as=self.dtype,
                distinct=self._distinct,
                fetched=self._count_fetched if l2_bytes else None,
                sorts_all=True,
                is_fbgemms=True,
                runs=self._runs,
            )

    def look_up(
        self,
        module: Any,
        indices: Tensor,
        offsets: Tensor,
        weights: Tensor | None,
        batches: Sequence[Sequence[int]] | None = None,
    ) -> Tensor:
        """Return the result of the module's forward pass.

        The module is an argument, not stored: a reference would keep its tables' memory alive. `batches` are samples of
        each feature from each rank if features have different batch sizes (VBE); the result is flat then.
        """
        if self._link.shadows is not None and self._link.shadows.has_all:
            raise RuntimeError("fbgemm's tables have no values on simulated GPUs: expected --play record")
        features, named = self._features(indices, offsets, weights, batches)
        if self._filled_ahead:
            self._filled_ahead -= 1
        else:
            self._fill(features)
        if self._unpooled:
            shape: tuple[int, ...] = (indices.numel(), self._dims[0])
        elif batches is None:
            shape = (features.stride or 0, sum(self._dims))
        else:
            shape = (sum(map(mul, features.stride_per_key, self._dims)),)
        # Fused tables update themselves in the backward pass: an empty leaf alone makes autograd call it.
        own = module.weights if self.is_dense else torch.empty(0, device="cuda", requires_grad=True)
        made: Tensor = _LookUp.apply(own, weights, shape, self, features, named)  # type: ignore[no-untyped-call]
        return made

    def fill_ahead(
        self, indices: Tensor, offsets: Tensor, batches: Sequence[Sequence[int]] | None, *, is_beside: bool
    ) -> None:
        """Fill the cache for a later pass, on the current stream; `is_beside`: passes run on another stream."""
        if self._fills_on is None and is_beside:
            self._fills_on = torch.cuda.current_stream()
        self._filled_ahead += 1
        self._fill(self._features(indices, offsets, None, batches)[0])

    def wait_for_fills(self) -> None:
        """Make the current stream wait for fills on their own stream."""
        if self._fills_on is not None:
            torch.cuda.current_stream().wait_stream(self._fills_on)

    def hold_fills(self) -> None:
        """Make later fills wait for the current stream, which writes rows."""
        if self._fills_on is not None:
            self._fills_on.wait_stream(torch.cuda.current_stream())

    def _fill(self, features: KeyedJagged) -> None:
        """Fetch the cache misses, if there is a cache.

        Misses are those of the steady state, assuming that batches are as large as the first and that all rows are
        equally likely.
        """
        if not self._load_factor:
            return
        with _by_itself(self._link):
            if self._prices.cache is None:
                self._prices.cache = _cache_of(self._prices, features, self._load_factor)
            kernel = self._prices.fill_kernel(features)
        self._link.launch(kernel)

    def launch(self, features: KeyedJagged, named: Named, *, is_backward: bool) -> None:
        """Launch a forward pass through the tables, or a backward pass with the update."""
        self._named = {table: found[0] for table, found in named.items()}
        self._named_often = {table: found[1:] for table, found in named.items()}
        with _by_itself(self._link):
            if not is_backward:
                kernel = self._prices.look_up_kernel(features)
            elif self.is_dense:
                kernel = self._prices.dense_gradients_kernel(features)
            else:
                kernel = self._prices.update_kernel(features)
        self._link.host.passed_bags()
        self._link.launch(kernel)

    def _piece(self, table: int) -> PricedPiece:
        rows, dim, *_ = self._specs[table]
        return PricedPiece(
            table=table,
            rows=range(rows),
            columns=range(dim),
            kernel=_KERNELS[_location(self._specs[table])],
            keys=self._tables.count(table),
        )

    def _features(
        self, indices: Tensor, offsets: Tensor, weights: Tensor | None, batches: Sequence[Sequence[int]] | None
    ) -> tuple[KeyedJagged, Named]:
        """Return the features as CPU tensors, as far as values are known, and the rows that their ids name.

        Raises:
            RuntimeError: the offsets are unknown.
        """
        shadows = self._link.shadows
        assert shadows is not None, "there is a GPU"
        with _by_itself(self._link):
            known, places = shadows.of(indices), shadows.of(offsets)
            if places is None:
                raise RuntimeError("where bags begin decides how long a lookup takes, and is unknown")
            lengths = places.diff()
            stride = lengths.numel() // len(self._tables)
            values = torch.empty(indices.numel(), dtype=indices.dtype, device="meta") if known is None else known
            of_batches = None if batches is None else tuple(map(tuple, batches))
            strides = [stride] * len(self._tables) if of_batches is None else list(map(sum, of_batches))
            of_key = [int(part.sum()) for part in lengths.split_with_sizes(strides)]
            parts = values.split_with_sizes(of_key)
            named: Named = {}
            for table in dict.fromkeys(self._tables if known is not None else ()):
                own = [part for part, of in zip(parts, self._tables, strict=True) if of == table]
                counts = torch.cat(own).unique(return_counts=True)[1]
                longest = int(counts.max()) if counts.numel() else 1
                named[table] = counts.numel(), int((counts > LONG_RUN).sum()), longest
            features = KeyedJagged(
                keys=tuple(map(str, range(len(self._tables)))),
                values=values,
                lengths=lengths,
                weights=None if weights is None else torch.empty(indices.numel(), device="meta"),
                stride=stride if of_batches is None else None,
                stride_per_key_per_rank=of_batches,
            )
            return features, named

    def _distinct(self, table: int, rows: range, ids: Sequence[float]) -> float:
        """Return the number of distinct rows: counted, or for unknown ids expected with equally likely rows."""
        if table in self._named:
            return float(self._named[table])
        count = sum(ids)
        return len(rows) * -expm1(count * log1p(-1 / len(rows))) if len(rows) > 1 else min(count, 1.0)

    def _runs(self, table: int) -> Runs | None:
        return self._named_often.get(table)

    def _count_fetched(self, table: int, rows: range, ids: Sequence[float], row_bytes: int) -> float:
        """Return the number of rows read from memory: a repeated read hits L2 with the share of distinct rows in L2."""
        named, room = self._distinct(table, rows, ids), self._l2_bytes / row_bytes
        return named + (sum(ids) - named) * max(0.0, 1 - room / named) if named else 0.0


class _LookUp(torch.autograd.Function):
    @staticmethod
    @passes_through
    def forward(
        ctx: Any,
        own: Tensor,
        weights: Tensor | None,
        shape: tuple[int, ...],
        bags: _ModuleBags,
        features: KeyedJagged,
        named: Named,
    ) -> Tensor:
        ctx.bags, ctx.given, ctx.like = bags, (features, named), (own, weights)
        made = torch.empty(shape, dtype=bags.dtype, device="cuda")
        bags.launch(features, named, is_backward=False)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        own, weights = ctx.like
        ctx.bags.launch(*ctx.given, is_backward=True)
        ctx.bags.hold_fills()
        of_weights = None if weights is None else torch.empty_like(weights)
        return torch.empty_like(own) if ctx.bags.is_dense else None, of_weights, None, None, None, None


def _location(spec: Sequence[Any]) -> str:
    """Return fbgemm's name of a table's location, from its spec (rows, dim and, in fused tables, location)."""
    return str(spec[2].name) if len(spec) > 2 else "DEVICE"


def _cache_of(prices: RowPrices, features: KeyedJagged, load_factor: float) -> RowCache:
    per_key, samples, cached = iter(features.length_per_key()), samples_of(features), []
    for piece in prices.pieces:
        ids = [next(per_key) / max(samples, 1) for _ in range(piece.keys)]
        if piece.kernel.is_cached:
            own = [Feature(name=str(number), ids_per_sample=each) for number, each in enumerate(ids)]
            dim = len(piece.columns)
            table = Table(
                name=str(piece.table),
                rows=len(piece.rows),
                dim=dim,
                ids_per_sample=sum(ids),
                sharding=(),
                features=tuple(own),
            )
            row_bytes = dim * prices.dtype.itemsize
            cached.append(CachedPiece(table=table, rows=piece.rows, row_bytes=row_bytes, load_factor=load_factor))
    return RowCache(cached, samples)


def _optimizer(module: Any) -> Optimizer:
    if not hasattr(module, "optimizer"):
        return Optimizer(kind="sgd")
    found = OPTIMIZERS.get(module.optimizer.name)
    if found is None:
        known = ", ".join(OPTIMIZERS)
        raise RuntimeError(f"fbgemm's optimizer {module.optimizer.name} has no price on simulated GPUs: {known}")
    return found


def _by_itself(link: SimulatedLink) -> AbstractContextManager[None]:
    """Return a context in which tensors belong to the simulation, not to the script."""
    assert link.shadows is not None, "there is a GPU"
    return link.shadows.suspend()
