"""Exchanges keyed jagged features between all ranks of a group, given which keys go where.

One small all-to-all of sizes, then one all-to-all a tensor, then a local reordering from source-major to key-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from scenarios.seam.arguments import size_bytes
from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.sparse.keyed_jagged import CHUNK_SUMS_LAUNCHES, KeyedJagged, chunk_sums, take_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who gets what: `keys_per_rank[r]` consecutive keys go to group rank r; `keys` are the names of those that come.

    `source_order`: the sources (group ranks) in the order in which their samples shall lie for every key; default: as
    they are numbered.
    """

    group: Group
    keys_per_rank: tuple[int, ...]
    keys: tuple[str, ...]
    label: str
    source_order: tuple[int, ...] = ()


async def exchange_features(rank: Rank, features: KeyedJagged, route: Route) -> KeyedJagged:
    """Send each member its keys, and give back this rank's, with the samples of all sources.

    `features`: keys in sending order, values where payload lives. A group of one moves nothing.
    """
    if route.group.size == 1:
        batches = () if features.stride is None else (features.stride,)
        return replace(features, keys=route.keys, batch_per_rank=batches)
    strides = features.stride_per_key
    ids = chunk_sums(features.lengths, strides)
    sent = _Sizes(lengths=per_rank(strides, route.keys_per_rank), values=per_rank(ids, route.keys_per_rank))
    received = await _exchange_sizes(rank, features, sent, route)
    return await reorder(rank, await _exchange_tensors(rank, features, route, sent=sent, received=received), route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Source-major tensors as they came. `strides[s][k]`: samples that source s sent of key k; None: `batches[s]`."""

    values: Tensor
    lengths: Tensor
    weights: Tensor | None
    batches: tuple[int, ...]
    strides: list[list[int]] | None = None


async def reorder(rank: Rank, arrived: Arrived, route: Route) -> KeyedJagged:
    """From source-major to key-major, every key's sources in the route's order."""
    return await rank.compute(
        chunks_kernel(1.0 if route.keys else 0.0, arrived.lengths, arrived.values, arrived.weights),
        _key_major,
        arrived,
        route,
        label=f"{route.label}.recat",
    )


def permute_kernel(tensor: Tensor, launches: int = 1) -> Kernel:
    """Moving a tensor in memory once: all bytes are read and written."""
    size = float(size_bytes(tensor))
    return Kernel(kind="permute", bytes_read=size, bytes_written=size, launches=launches)


def chunks_kernel(share: float, lengths: Tensor, *others: Tensor | None) -> Kernel:
    """Moving a share of the keys' chunks of all tensors once; as if all keys had as many ids.

    How long the chunks are is summed up first: lengths are read, and their offsets, int64, set to zero and filled.
    """
    moved = [lengths, *(tensor for tensor in others if tensor is not None)]
    size, offsets = share * sum(map(size_bytes, moved)), lengths.numel() * torch.int64.itemsize
    return Kernel(
        kind="permute",
        bytes_read=size + size_bytes(lengths),
        bytes_written=size + 2 * offsets,
        launches=CHUNK_SUMS_LAUNCHES + (len(moved) if share else 0),
    )


def per_rank(items: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Sums of consecutive items, `counts[r]` of them for group rank r."""
    ends = [0, *accumulate(items)]
    bounds = [0, *accumulate(counts)]
    return [ends[high] - ends[low] for low, high in pairwise(bounds)]


def _key_major(arrived: Arrived, route: Route) -> KeyedJagged:
    keys = len(route.keys)
    strides = arrived.strides or [[batch] * keys for batch in arrived.batches]
    samples = [stride for row in strides for stride in row]
    ids = chunk_sums(arrived.lengths, samples)
    sources = route.source_order or range(route.group.size)
    order = [source * keys + key for key in range(keys) for source in sources]
    by_key = tuple(tuple(strides[source][key] for source in sources) for key in range(keys))
    return KeyedJagged(
        keys=route.keys,
        values=take_chunks(arrived.values, ids, order),
        lengths=take_chunks(arrived.lengths, samples, order),
        weights=None if arrived.weights is None else take_chunks(arrived.weights, ids, order),
        stride=sum(arrived.batches) if arrived.strides is None else None,
        stride_per_key_per_rank=None if arrived.strides is None else by_key,
        batch_per_rank=arrived.batches if arrived.strides is None else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Elements to or from each member, by group rank."""

    lengths: list[int]
    values: list[int]
    batches: tuple[int, ...] = ()


async def _exchange_sizes(rank: Rank, features: KeyedJagged, sizes: _Sizes, route: Route) -> _Sizes:
    """Tell every member how much it will get: one column a tensor, and the batch where all keys have the same one.

    Ranks that send different tensors (weights on some only, say) differ here in size, before any data moves.
    """
    batch = features.stride
    rows = [sizes.lengths, sizes.values]
    rows += [] if features.weights is None else [sizes.values]
    rows.append(list(route.keys_per_rank) if batch is None else [batch] * route.group.size)
    sent = torch.tensor(rows, dtype=torch.int64).t().contiguous().to(rank.control_device)
    came = torch.empty_like(sent)
    await rank.all_to_all_single(came, sent, group=route.group, label=f"{route.label}.splits")
    lengths, values, *_, last = came.t().tolist()
    return _Sizes(lengths=lengths, values=values, batches=() if batch is None else tuple(last))


async def _exchange_tensors(
    rank: Rank, features: KeyedJagged, route: Route, *, sent: _Sizes, received: _Sizes
) -> Arrived:
    """All tensors are issued before the first is awaited."""

    def issue(name: str, tensor: Tensor, sends: Sequence[int], receives: Sequence[int]) -> Work[Tensor]:
        output = tensor.new_empty(sum(receives))
        label = f"{route.label}.{name}"
        return rank.all_to_all_single(output, tensor, receives, sends, route.group, label=label)

    works = {}
    works["lengths"] = issue("lengths", features.lengths, sent.lengths, received.lengths)
    works["values"] = issue("values", features.values, sent.values, received.values)
    if features.stride is None:
        strides = torch.tensor(features.stride_per_key, dtype=torch.int64, device=features.lengths.device)
        each = [len(route.keys)] * route.group.size
        works["strides"] = issue("strides", strides, route.keys_per_rank, each)
    if features.weights is not None:
        works["weights"] = issue("weights", features.weights, sent.values, received.values)
    done = {name: await work for name, work in works.items()}
    by_source: list[list[int]] | None = None
    if "strides" in done:
        by_source = done["strides"].view(-1, len(route.keys)).tolist() if route.keys else []
    return Arrived(
        values=done["values"],
        lengths=done["lengths"],
        weights=done.get("weights"),
        batches=received.batches,
        strides=by_source,
    )
