"""Embedding lookup and update by fbgemm: one launch a pass for all tables, and no waits of the host.

Facts are those of fbgemm 1.6 to 1.8. Importing fbgemm takes seconds, so that only its users import it.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.errors import Note, tell_error
from scenarios.sparse.keyed_jagged import offsets_of, send_to_device
from scenarios.workloads.dlrm.tables import embedding_torch, fbgemm_limits
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, RankRows
from scenarios.workloads.dlrm.tables.prices import PricedPiece, RowPrices

# Copied tables are updated row by row for all rows, for which fbgemm has no operator; nothing is compiled here.
adagrad, adagrad_all, load = embedding_torch.adagrad, embedding_torch.adagrad_all, embedding_torch.load


@cache
def is_installed(device: torch.device) -> bool:
    """Return whether fbgemm can be imported, built for that type of device; warn with the reason if not."""
    if find_spec("fbgemm_gpu") is None:
        return False
    try:
        _fbgemm()
        is_of_cpus = getattr(sys.modules["fbgemm_gpu"], "__variant__", "") == "cpu"
        wrong = "it is the build for CPUs" if is_of_cpus and device.type != "cpu" else ""
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # built for another torch
        wrong = tell_error(error)
    if wrong:
        sentence = "embeddings are looked up and updated by chains of torch operations"
        warnings.warn(f"fbgemm_gpu cannot be used, so {sentence}: {wrong}", Note, stacklevel=2)
    return not wrong


def takes(dims: Iterable[int], dtype: torch.dtype, travels_as: torch.dtype) -> bool:
    """Return whether fbgemm's operators look up rows of these dims and dtype."""
    return fbgemm_limits.takes(dims, *(str(each).removeprefix("torch.") for each in (dtype, travels_as)))


def trains(prices: RowPrices, device: torch.device) -> bool:
    """Return whether fbgemm's fused updates train such rows."""
    is_trained = not fbgemm_limits.why_not_trained(prices.optimizer, device.type)
    return is_trained and takes(prices.dims, prices.dtype, prices.travels_as)


class FbgemmRows:
    """Rows in fbgemm's modules, whose backward passes update them: one in all, or one per width of unpooled rows.

    The autograd state of a lookup is kept until its update, so that other batches may be looked up in between.
    """

    def __init__(self, prices: RowPrices, device: torch.device, *, looks_ahead: bool) -> None:
        """Make the modules; `looks_ahead`: cached rows stay in the cache until they are updated."""
        self._pieces, self._dims, self._unpooled = prices.pieces, prices.dims, prices.unpooled
        of_keys = [number for number, piece in enumerate(prices.pieces) for _ in range(piece.keys)]
        self._keys = _group_keys(self._dims, unpooled=self._unpooled)
        self._held = [list(dict.fromkeys(of_keys[key] for key in keys)) for keys in self._keys]  # pieces
        self._modules = []
        for keys, held in zip(self._keys, self._held, strict=True):
            own = [prices.pieces[number] for number in held]
            names = [held.index(of_keys[key]) for key in keys]
            self._modules.append(_module(own, names, prices, device, looks_ahead=looks_ahead))
        is_cached = any(piece.kernel.is_cached for piece in prices.pieces)
        self._looks_up_on = torch.cuda.current_stream(device) if is_cached and device.type == "cuda" else None
        # Ids and looked-up rows by id() of the ids, which are kept so that no other tensor can get that id().
        self._left: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def weights(self) -> list[Tensor]:
        """The rows by piece, [rows, columns], in their own memory; caches are written back and emptied.

        No batch may be between its fetch and its update then, because fbgemm keeps its rows' places in the cache.
        """
        for module in self._modules:
            if module.lxu_cache_weights.numel():
                module.flush()
                module.reset_cache_states()
        return self._by_piece([module.split_embedding_weights() for module in self._modules])

    @property
    def states(self) -> list[Tensor]:
        """The optimizer's state by piece, the first kind of all pieces before the second."""
        of_modules = [list(zip(*module.split_optimizer_states(), strict=True)) for module in self._modules]
        return [part for kinds in zip(*of_modules, strict=True) for part in self._by_piece(kinds)]

    def look_up(self, named: Named, samples: int) -> Tensor:
        """Return the sum of each bag's rows, or each id's row."""
        with torch.enable_grad():
            found = _in_turn(named, self._keys, self._dims, lambda number, *bags: self._modules[number](*bags))
        self._left[id(named.ids)] = named.ids, found
        return found.detach()

    def fill(self, named: Named) -> None:
        """Fetch the rows that bags name and caches miss, before the lookup."""
        main = self._looks_up_on
        if main is None:
            return

        def fetch(number: int, ids: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
            is_beside = main != torch.cuda.current_stream(main.device)
            self._modules[number].prefetch(ids, offsets, main if is_beside else None)
            return ids

        _in_turn(named, self._keys, [1] * len(self._dims), fetch)

    def update(self, named: Named, gradient: Tensor) -> None:
        """Run one optimizer step on the rows that bags name, after looking them up if that was not done."""
        if id(named.ids) not in self._left:
            self.look_up(named, 0)
        _, found = self._left.pop(id(named.ids))
        found.backward(gradient.to(found.dtype))

    def _by_piece(self, of_modules: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Return the modules' tensors by piece, in order, without the padding row of empty pieces."""
        found = {
            number: part
            for held, parts in zip(self._held, of_modules, strict=True)
            for number, part in zip(held, parts, strict=True)
        }
        return [found[number][: len(piece.rows)] for number, piece in enumerate(self._pieces)]


def look_up(rows: RankRows, named: Named, samples: int, dtype: torch.dtype) -> Tensor:
    """Return the sum of each bag's rows: [samples, all columns], like `embedding_cpu.look_up`."""
    if named.unpooled:  # unsupported by fbgemm's operator for dense gradients on CPUs
        return embedding_torch.look_up(rows, named, samples, dtype)
    with torch.no_grad():
        return _sum_bags(rows.weights, rows.places, named, dtype)


def sums(places: Places, named: Named, gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum as `embedding_cpu.sums` does: the gradient of a lookup, whose rows may have any values."""
    if named.unpooled:
        return embedding_torch.sums(places, named, gradient, dtype)
    numel = int((places.rows * places.dims).sum())
    with torch.enable_grad():
        weights = torch.empty(numel, dtype=dtype, device=gradient.device, requires_grad=True)
        found = _sum_bags(weights, places, named, gradient.dtype)
    (total,) = torch.autograd.grad(found, weights, gradient)
    return total


def _sum_bags(weights: Tensor, places: Places, named: Named, dtype: torch.dtype) -> Tensor:
    """Return the sums of bags' rows in a flat tensor."""
    _fbgemm()
    sizes = (tuple(each.tolist()) for each in (places.rows, places.dims, places.pieces))
    found: Tensor = torch.ops.fbgemm.dense_embedding_codegen_lookup_function(
        dev_weights=weights,
        **_where(*sizes, weights.device),
        indices=named.ids,
        offsets=_offsets(named.lengths, named.ids),
        pooling_mode=_pooling(unpooled=False),
        indice_weights=named.weights,
        feature_requires_grad=None,
        output_dtype=_sparse_type(dtype).as_int(),
    )
    return found.to(dtype)  # on CPUs the result has the rows' dtype


@lru_cache(maxsize=256)
def _where(
    rows: tuple[int, ...], dims: tuple[int, ...], keys: tuple[int, ...], device: torch.device
) -> Mapping[str, Tensor | int]:
    """Return consecutive tables as fbgemm's operators take them: numbers by key, plus the end, on the device."""
    first_rows, columns = [0, *accumulate(rows)], [0, *accumulate(dims[key] for key in keys)]
    offsets = [0, *accumulate(count * dim for count, dim in zip(rows, dims, strict=True))]
    return {
        "weights_offsets": send_to_device(torch.tensor([offsets[key] for key in keys]), device),
        "D_offsets": send_to_device(torch.tensor(columns, dtype=torch.int32), device),
        "total_D": columns[-1],
        "max_D": max(dims[key] for key in keys),
        "hash_size_cumsum": send_to_device(torch.tensor([*(first_rows[key] for key in keys), first_rows[-1]]), device),
        "total_hash_size_bits": int(math.log2(first_rows[-1]) + 1) if first_rows[-1] else 0,
    }


def _group_keys(dims: Sequence[int], *, unpooled: bool) -> list[list[int]]:
    """Return the keys for each operator call: all, or for unpooled rows those of one width."""
    if not unpooled:
        return [list(range(len(dims)))]
    return [[key for key, dim in enumerate(dims) if dim == width] for width in dict.fromkeys(dims)]


def _in_turn(
    named: Named, together: Sequence[Sequence[int]], dims: Sequence[int], call: Callable[..., Tensor]
) -> Tensor:
    """Call `call(number, ids, offsets, weights)` for each set of keys in `together`; join results in key order."""
    if len(together) == 1:
        found = call(0, named.ids, _offsets(named.lengths, named.ids), named.weights)
        return found.reshape(-1) if named.unpooled else found
    counts, lengths = named.ids_of_keys(len(dims)), named.lengths.view(len(dims), -1)
    ids, parts = named.ids.split_with_sizes(counts), [named.ids] * len(dims)
    for number, keys in enumerate(together):
        chosen = torch.cat([ids[key] for key in keys])
        bags = torch.cat([lengths[key] for key in keys])
        found = call(number, chosen, _offsets(bags, chosen), None)
        for key, part in zip(keys, found.split_with_sizes([counts[key] for key in keys]), strict=True):
            parts[key] = part.reshape(-1)
    return torch.cat(parts)


def _offsets(lengths: Tensor, ids: Tensor) -> Tensor:
    return send_to_device(offsets_of(lengths), ids.device).to(ids.dtype)


def _module(
    pieces: Sequence[PricedPiece], keys: Sequence[int], prices: RowPrices, device: torch.device, *, looks_ahead: bool
) -> Any:
    """Return fbgemm's module of these pieces, whose rows the keys name; empty pieces get one row."""
    fbgemm, cpu = _fbgemm(), device.type == "cpu"
    locations, own = fbgemm.EmbeddingLocation, prices.optimizer
    computes_on = fbgemm.ComputeDevice.CPU if cpu else fbgemm.ComputeDevice.CUDA
    specs = [
        (
            max(1, len(piece.rows)),
            len(piece.columns),
            locations.HOST if cpu else locations[piece.kernel.fbgemm_location],
            computes_on,
        )
        for piece in pieces
    ]
    of_cache = prices.cache
    share = of_cache.capacity / max(1, sum(len(each.rows) for each in of_cache.pieces)) if of_cache else 0.0
    return fbgemm.SplitTableBatchedEmbeddingBagsCodegen(
        specs,
        feature_table_map=list(keys),
        cache_load_factor=share,
        weights_precision=_sparse_type(prices.dtype),
        output_dtype=_sparse_type(prices.travels_as),
        pooling_mode=fbgemm.PoolingMode(_pooling(unpooled=prices.unpooled)),
        device=device,
        bounds_check_mode=fbgemm.BoundsCheckMode.FATAL,
        prefetch_pipeline=looks_ahead and any(each[2] == locations.MANAGED_CACHING for each in specs),
        stochastic_rounding=False,
        optimizer=getattr(fbgemm.OptimType, fbgemm_limits.optim_type(own)),
        learning_rate=own.learning_rate,
        eps=own.epsilon,
        beta1=own.beta1,
        beta2=own.beta2,
        weight_decay=own.weight_decay,
    )


def _sparse_type(dtype: torch.dtype) -> Any:
    types = _fbgemm().SparseType
    return {torch.float32: types.FP32, torch.float16: types.FP16, torch.bfloat16: types.BF16}[dtype]


def _pooling(*, unpooled: bool) -> int:
    modes = _fbgemm().PoolingMode
    return int((modes.NONE if unpooled else modes.SUM).value)


@cache
def _fbgemm() -> ModuleType:
    """Import fbgemm without its warnings on missing parts, slow optimizers and registration."""
    for sentence in (
        r"(?s).*\[FBGEMM_GPU\] NOTE",
        "fbgemm::dense_embedding_codegen_lookup_function: an autograd kernel",
    ):
        warnings.filterwarnings("ignore", message=sentence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
