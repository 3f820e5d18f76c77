"""The pooled output exchanges, forward and backward, which send rows of embeddings to the ranks of their samples.

A forward sends `pooled` [samples of all ranks, dims of this rank's keys] home, samples in input order, and returns
[batch, dims of all features of the group], with the columns in the order that each class states.
Every backward is the exact transpose of its forward: gradients are moved and copied, not divided by the number of
ranks. `batch_per_rank` comes from the input exchange, for each member of the world's group; batches may differ by rank.
Codecs (`scenarios.quantized`) encode sent data; encoded gradients are divided by the number of ranks when decoded, as
in TorchRec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from scenarios.quantized.codec import PLAIN, Codec, QuantizedComms
from scenarios.quantized.exchange import check_adds, decode, encode, exchange
from scenarios.seam.arguments import dtype_name, size_bytes
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.roles import GRADIENTS, ROWS
from scenarios.sparse.feature_exchange import permute_kernel
from scenarios.sparse.input_dist import staggered_sources
from scenarios.sparse.keyed_jagged import cat

LABEL = "output_dist"
LABEL_BACKWARD = "output_dist_backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwRwPooledEmbeddingDist:
    """The output exchange that reduce-scatters partial sums in the host, then exchanges across hosts; columns by host.

    `dim_sum_per_node[n]` is the width of host n's features.
    """

    dim_sum_per_node: tuple[int, ...]
    label: str = ""
    codecs: QuantizedComms = PLAIN

    async def forward(self, rank: Rank, pooled: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        chunks, mine = self._stagger(rank, batch_per_rank)
        dims, width, label = self._dims(rank), sum(self.dim_sum_per_node), self.label + LABEL
        codec = self.codecs.all_to_all.forward
        summed = await sum_to_owner(
            rank, rank.intra, pooled, chunks, label=label, codec=self.codecs.reduce_scatter.forward
        )
        return await rows_home(rank, rank.cross, summed, mine, dims=dims, width=width, label=label, codec=codec)

    async def backward(self, rank: Rank, grad: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        chunks, mine = self._stagger(rank, batch_per_rank)
        label = self.label + LABEL_BACKWARD
        codec = self.codecs.all_to_all.backward
        rows = await rows_back(rank, rank.cross, grad, mine, dims=self._dims(rank), label=label, codec=codec)
        codec = self.codecs.reduce_scatter.backward
        return await copy_to_all(rank, rank.intra, rows, chunks, label=label, codec=codec)

    def _stagger(self, rank: Rank, batch_per_rank: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the samples of all hosts by local rank, and of each host for this local rank."""
        hosts, local = len(rank.cross.ranks), rank.intra.size
        if len(self.dim_sum_per_node) != rank.cross.size:
            raise ValueError(
                f"dim_sum_per_node has {len(self.dim_sum_per_node)} items, expected one a host: {rank.cross.size};"
                " the rows of a table lie on the ranks of one host"
            )
        _check_batches(rank, batch_per_rank)
        batches = [batch_per_rank[source] for source in staggered_sources(hosts, local)]
        by_local = [batches[start : start + hosts] for start in range(0, len(batches), hosts)]
        return [rank.cross.total(part) for part in by_local], by_local[rank.local_rank]

    def _dims(self, rank: Rank) -> list[int]:
        return [self.dim_sum_per_node[host] for host in rank.hosts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwPooledEmbeddingDist:
    """The output exchange by one all-to-all of each rank's rows to the samples' ranks; columns by rank.

    `dim_sum_per_rank[r]` is the width of rank r's features.
    """

    dim_sum_per_rank: tuple[int, ...]
    label: str = ""
    codecs: QuantizedComms = PLAIN

    async def forward(self, rank: Rank, pooled: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        _check_batches(rank, batch_per_rank)
        dims, width, label = self._dims(rank), sum(self.dim_sum_per_rank), self.label + LABEL
        codec = self.codecs.all_to_all.forward
        return await rows_home(
            rank, rank.world, pooled, batch_per_rank, dims=dims, width=width, label=label, codec=codec
        )

    async def backward(self, rank: Rank, grad: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        _check_batches(rank, batch_per_rank)
        dims, label = self._dims(rank), self.label + LABEL_BACKWARD
        codec = self.codecs.all_to_all.backward
        return await rows_back(rank, rank.world, grad, batch_per_rank, dims=dims, label=label, codec=codec)

    def _dims(self, rank: Rank) -> list[int]:
        return [self.dim_sum_per_rank[place] for place in rank.places]


@dataclass(frozen=True, slots=True, kw_only=True)
class RwPooledEmbeddingDist:
    """The output exchange that reduce-scatters partial sums over all ranks; columns in the order of the features."""

    label: str = ""
    codecs: QuantizedComms = PLAIN

    async def forward(self, rank: Rank, pooled: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        _check_batches(rank, batch_per_rank)
        codec = self.codecs.reduce_scatter.forward
        return await sum_to_owner(rank, rank.world, pooled, batch_per_rank, label=self.label + LABEL, codec=codec)

    async def backward(self, rank: Rank, grad: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        _check_batches(rank, batch_per_rank)
        label, codec = self.label + LABEL_BACKWARD, self.codecs.reduce_scatter.backward
        return await copy_to_all(rank, rank.world, grad, batch_per_rank, label=label, codec=codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpPooledEmbeddingDist:
    """The output exchange of copied tables: nothing moves; the program must all-reduce the tables' gradients."""

    async def forward(self, rank: Rank, pooled: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        return pooled

    async def backward(self, rank: Rank, grad: Tensor, batch_per_rank: Sequence[int]) -> Tensor:
        return grad


PooledEmbeddingDist = TwRwPooledEmbeddingDist | TwPooledEmbeddingDist | RwPooledEmbeddingDist | DpPooledEmbeddingDist


async def sum_to_owner(
    rank: Rank, group: Group, rows: Tensor, counts: Sequence[int], *, label: str, codec: Codec | None = None
) -> Tensor:
    """Sum rows [sum of counts, dims] over the group; each member keeps its chunk [counts[member], dims].

    Even chunks use one reduce-scatter. torch.distributed has none for uneven chunks, which are exchanged and summed
    here, with the same bytes as a direct reduce-scatter. Encoded elements are added if there is a codec.

    Raises:
        ValueError: elements of the codec cannot be added.
    """
    shape = counts[group.index(rank.rank)], rows.shape[1]
    if group.size == 1:
        return rows
    rank = rank.for_role(ROWS)
    check_adds(codec, label)
    # All members have equally many rows and columns, so all of them skip the call.
    if rows.numel() == 0:
        return rows.new_empty(shape)
    encoded = await encode(rank, rows.contiguous(), codec, label=label)
    summed = await _sum_rows(rank, group, encoded, counts, label=label)
    return await decode(rank, summed, codec, label=label, shape=shape)


async def _sum_rows(rank: Rank, group: Group, rows: Tensor, counts: Sequence[int], *, label: str) -> Tensor:
    mine = counts[group.index(rank.rank)]
    if min(counts) == max(counts):
        output = rows.new_empty(mine, rows.shape[1])
        return await rank.reduce_scatter_tensor(output, rows, group=group, label=f"{label}.reduce_scatter")
    parts = rows.new_empty(group.size * mine, rows.shape[1])
    each = [mine] * len(group.ranks)
    await rank.all_to_all_single(parts, rows, each, counts, group, label=f"{label}.reduce_scatter")
    by_member = parts.view(group.size, mine, rows.shape[1])
    size = float(size_bytes(parts))
    kernel = Kernel(
        kind="elementwise",
        flops=parts.numel() * (group.size - 1) / group.size,
        bytes_read=size,
        bytes_written=size / group.size,
        dtype=dtype_name(parts),
    )
    return await rank.compute(kernel, by_member.sum, 0, label=f"{label}.sum")


async def copy_to_all(
    rank: Rank, group: Group, rows: Tensor, counts: Sequence[int], *, label: str, codec: Codec | None = None
) -> Tensor:
    """Transpose `sum_to_owner`: return all members' chunks [sum of counts, dims], in group order.

    Decoded chunks are divided by the size of the group.
    """
    shape = group.total(counts), rows.shape[1]
    if group.size == 1:
        return rows
    rank = rank.for_role(GRADIENTS)
    check_adds(codec, label)
    if prod(shape) == 0:
        return rows.new_empty(shape)
    encoded = await encode(rank, rows.contiguous(), codec, label=label)
    copies = await _copy_rows(rank, group, encoded, counts, label=label)
    return await decode(rank, copies, codec, label=label, shape=shape, divisor=group.size)


async def _copy_rows(rank: Rank, group: Group, rows: Tensor, counts: Sequence[int], *, label: str) -> Tensor:
    output = rows.new_empty(group.total(counts), rows.shape[1])
    if min(counts) == max(counts):
        return await rank.all_gather_into_tensor(output, rows, group, label=f"{label}.all_gather")
    size = float(size_bytes(rows))
    kernel = Kernel(kind="permute", bytes_read=size, bytes_written=size * group.size)
    copies = await rank.compute(kernel, rows.repeat, group.size, 1, label=f"{label}.repeat")
    each = [rows.shape[0]] * len(group.ranks)
    return await rank.all_to_all_single(output, copies, counts, each, group, label=f"{label}.all_gather")


async def rows_home(
    rank: Rank,
    group: Group,
    rows: Tensor,
    counts: Sequence[int],
    *,
    dims: Sequence[int],
    width: int,
    label: str,
    codec: Codec | None = None,
) -> Tensor:
    """Send rows [sum of counts, dims[me]] to the members that own the samples; return [counts[me], width].

    `width` is that of all ranks: the sum of `dims`, unless members represent several identical ranks.
    """
    if group.size == 1:
        return rows
    rank, me = rank.for_role(ROWS), group.index(rank.rank)
    receives = [counts[me] * width for width in dims]
    arrived = rows.new_empty(0)
    # The totals are equal on all members, so either all of them exchange or none does.
    if group.total(counts) * group.total(dims):
        sends = [count * dims[me] for count in counts]
        flat = rows.contiguous().view(-1)
        arrived = await exchange(rank, group, flat, receives=receives, sends=sends, codec=codec, label=label)
    return await rank.compute(
        permute_kernel(arrived), _side_by_side, arrived, counts[me], width, dims, label=f"{label}.columns"
    )


async def rows_back(
    rank: Rank,
    group: Group,
    grad: Tensor,
    counts: Sequence[int],
    *,
    dims: Sequence[int],
    label: str,
    codec: Codec | None = None,
) -> Tensor:
    """Transpose `rows_home`: send [counts[me], sum of dims] back to the rows' ranks; return [sum of counts, dims[me]].

    Decoded gradients are divided by the size of the group.
    """
    if group.size == 1:
        return grad
    rank, me = rank.for_role(GRADIENTS), group.index(rank.rank)
    samples, sends = group.total(counts), [counts[me] * width for width in dims]
    kernel = permute_kernel(grad, launches=group.total([width > 0 for width in dims]))
    flat = await rank.compute(kernel, _one_after_the_other, grad, group.total(sends), dims, label=f"{label}.columns")
    arrived = grad.new_empty(samples * dims[me])
    if samples * group.total(dims):
        receives = [count * dims[me] for count in counts]
        arrived = await exchange(
            rank, group, flat, receives=receives, sends=sends, codec=codec, label=label, divisor=group.size
        )
    return arrived.view(samples, dims[me])


def _check_batches(rank: Rank, batch_per_rank: Sequence[int]) -> None:
    if len(batch_per_rank) != len(rank.world.ranks):
        raise ValueError(
            f"batch_per_rank has {len(batch_per_rank)} items, expected one a rank: {len(rank.world.ranks)};"
            " batches that differ by key have no pooled exchange"
        )


def _side_by_side(flat: Tensor, rows: int, width: int, dims: Sequence[int]) -> Tensor:
    if flat.is_meta:
        return flat.new_empty(rows, width)
    parts = torch.split_with_sizes(flat, [rows * each for each in dims])
    return cat([part.view(rows, each) for part, each in zip(parts, dims, strict=True)], dim=1)


def _one_after_the_other(grad: Tensor, numel: int, dims: Sequence[int]) -> Tensor:
    flat = grad.new_empty(numel)
    if not grad.is_meta:
        parts = torch.split_with_sizes(flat, [len(grad) * width for width in dims])
        for part, columns in zip(parts, torch.split_with_sizes(grad, dims, dim=1), strict=True):
            if columns.shape[1]:
                part.view(columns.shape).copy_(columns)
    return flat
