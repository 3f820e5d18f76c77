"""Exchanges keyed jagged features between all ranks of a group, given the destination of each key.

A small all-to-all of sizes is followed by one all-to-all per tensor, and a local reordering from source-major to
key-major. Several exchanges run together, as in TorchRec 1.8.0: all sizes are sent before the first are awaited.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from scenarios.seam.arguments import dtype_name, size_bytes
from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.sorting import PermuteSparse
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS, SIZES
from scenarios.sharding_kind import ShardingKind
from scenarios.sparse.keyed_jagged import CHUNK_SUMS_LAUNCHES, KeyedJagged, chunk_sums, send_to_device, take_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The destinations of keys: `keys_per_rank[r]` consecutive keys go to group rank r; `keys` names the arriving ones.

    `source_order`: sources (group ranks) in the order of their samples within every key; by default in rank order.
    """

    group: Group
    keys_per_rank: tuple[int, ...]
    keys: tuple[str, ...]
    label: str
    source_order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A rank's features to send, keys in sending order, values on the payload's device; without `route` they stay.

    If rows are returned to their ids, `own` are the features before bucketizing, and `moved` is each id's place after.
    `sharding` is the sharding type of the tables that they are for, if all have one.
    """

    features: KeyedJagged
    route: Route | None = None
    own: KeyedJagged | None = None
    moved: Tensor | None = None
    sharding: ShardingKind | None = None

    @property
    def moves(self) -> bool:
        """Whether any data leave this rank: a group of one moves nothing."""
        return self.route is not None and self.route.group.size > 1


async def exchange_features(
    rank: Rank, prepare: Sequence[Callable[[], Awaitable[Sending]]], *, fused_label: str = ""
) -> list[tuple[Sending, KeyedJagged]]:
    """Send each member its keys, and return this rank's keys with the samples of all sources, for each of `prepare`.

    Each exchange announces its sizes as soon as it is prepared, and sends data when the others' sizes are known. The
    sizes of all exchanges are sent in one call if there is a `fused_label`, which requires equal groups.
    """
    sendings, moving, works = [], [], []
    for make in prepare:
        sendings.append(await make())
        if sendings[-1].moves:
            moving.append(_Moving.of(rank, sendings[-1]))
            if not fused_label:
                works.append(moving[-1].tell())
    told = await _announce_sizes(rank, moving, fused_label) if fused_label else None
    sizes = []
    for number, one in enumerate(moving):
        # The host needs the numbers to allocate outputs, so it waits for them, not only its stream.
        sizes.append(one.receive(_rows(await rank.synchronize(works[number])) if told is None else told[number]))
        one.issue(sizes[-1])
    # Reordered only after all exchanges have been issued: the host must not wait for one before it sends the next.
    arrived = iter(
        [await reorder(one.rank, await one.arrive(own), one.route) for one, own in zip(moving, sizes, strict=True)]
    )
    return [(sending, next(arrived) if sending.moves else _keep_own(sending)) for sending in sendings]


async def exchange_one(rank: Rank, sending: Sending) -> KeyedJagged:
    """Run one exchange alone, and return its arriving features."""

    async def prepare() -> Sending:
        return sending

    ((_, arrived),) = await exchange_features(rank, [prepare])
    return arrived


def _keep_own(sending: Sending) -> KeyedJagged:
    features, route = sending.features, sending.route
    batches = () if features.stride is None else (features.stride,)
    return replace(features, keys=features.keys if route is None else route.keys, batch_per_rank=batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Source-major tensors as received; `strides[s][k]` is the number of samples of key k from source s; None:
    `batches[s]`. `ids` are numbers by source and key, if known without lengths.
    """

    values: Tensor
    lengths: Tensor
    weights: Tensor | None
    batches: tuple[int, ...]
    strides: list[list[int]] | None = None
    ids: list[int] | None = None


async def reorder(rank: Rank, arrived: Arrived, route: Route) -> KeyedJagged:
    """Reorder from source-major to key-major, with each key's sources in the route's order."""
    return await rank.compute(
        chunks_kernel(1.0 if route.keys else 0.0, arrived.lengths, arrived.values, arrived.weights),
        _key_major,
        arrived,
        route,
        label=f"{route.label}.recat",
        role=IDS,
    )


def permute_kernel(tensor: Tensor, launches: int = 1) -> Kernel:
    """Return the kernel that moves a tensor in memory once: all bytes are read and written."""
    size, numel = float(size_bytes(tensor)), tensor.numel()
    operations = (contiguous("copy_", numel, dtype_name(tensor)),) if numel else ()
    return Kernel(kind="permute", bytes_read=size, bytes_written=size, launches=launches, operations=operations)


def chunks_kernel(share: float, lengths: Tensor, *others: Tensor | None, share_of_ids: float | None = None) -> Kernel:
    """Return the kernel that moves a share of the keys' chunks of all tensors once; all keys count as equally long.

    First, chunk lengths are summed: lengths are read, and their int64 offsets zeroed and filled. The host skips that if
    it knows the sums, and thus the `share_of_ids` that moves.
    """
    moved = [lengths, *(tensor for tensor in others if tensor is not None)]
    is_known = share_of_ids is not None
    of_ids = share if share_of_ids is None else share_of_ids
    size = share * size_bytes(lengths) + of_ids * sum(map(size_bytes, moved[1:]))
    offsets = lengths.numel() * torch.int64.itemsize
    return Kernel(
        kind="permute",
        bytes_read=size + (0 if is_known else size_bytes(lengths)),
        bytes_written=size + (0 if is_known else 2 * offsets),
        launches=(0 if is_known else CHUNK_SUMS_LAUNCHES) + (len(moved) if share else 0),
        operations=_permutation(lengths, moved[1:]) if share == 1.0 else (),
    )


def _permutation(lengths: Tensor, others: Sequence[Tensor]) -> tuple[Operation, ...]:
    """Describe fbgemm's permutation of all keys' lengths and ids, and of what goes with each id."""
    if not (others and others[0].numel()):
        return ()
    id_bytes = sum(size_bytes(each) for each in others) // others[0].numel()
    return (PermuteSparse(bags=lengths.numel(), ids=others[0].numel(), id_bytes=id_bytes),)


def per_rank(items: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Sum consecutive items, `counts[r]` of them for group rank r."""
    ends = [0, *accumulate(items)]
    bounds = [0, *accumulate(counts)]
    return [ends[high] - ends[low] for low, high in pairwise(bounds)]


def _key_major(arrived: Arrived, route: Route) -> KeyedJagged:
    keys = len(route.keys)
    strides = arrived.strides or [[batch] * keys for batch in arrived.batches]
    samples = [stride for row in strides for stride in row]
    # Sums read the device: chunk sizes decide how values are split, and the host splits.
    ids = chunk_sums(arrived.lengths, samples) if arrived.ids is None else arrived.ids
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
        ids_per_key=tuple(sum(ids[key::keys]) for key in range(keys)),
        ids_per_key_per_rank=tuple(tuple(ids[source * keys + key] for source in sources) for key in range(keys)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Elements to or from each member, by group rank."""

    lengths: list[int]
    values: list[int]
    batches: tuple[int, ...] = ()


@dataclass(slots=True)
class _Moving:
    """An exchange of features in progress: its sizes and, by tensor, the calls begun."""

    rank: Rank
    features: KeyedJagged
    route: Route
    sent: _Sizes
    works: dict[str, Work[Tensor]] = field(default_factory=dict)

    @staticmethod
    def of(rank: Rank, sending: Sending) -> _Moving:
        features, route = sending.features, sending.route
        assert route is not None
        strides = features.stride_per_key
        ids = features.length_per_key()
        lengths, values = per_rank(strides, route.keys_per_rank), per_rank(ids, route.keys_per_rank)
        own = rank if sending.sharding is None else rank.for_tables(sending.sharding)
        return _Moving(own, features, route, _Sizes(lengths=lengths, values=values))

    def sizes(self) -> list[list[int]]:
        """Return the numbers to announce, by member: one row per tensor, and the batch if all keys have the same.

        Ranks that send different tensors (for example weights on some only) are found by these sizes, before any data
        move.
        """
        batch, size = self.features.stride, self.route.group.size
        rows = [self.sent.lengths, self.sent.values]
        rows += [] if self.features.weights is None else [self.sent.values]
        return [*rows, list(self.route.keys_per_rank) if batch is None else [batch] * size]

    def tell(self) -> Work[Tensor]:
        return _tell(self.rank, self.sizes(), self.route.group, self.route.label)

    def receive(self, told: Sequence[Sequence[int]]) -> _Sizes:
        """Return the sizes that arrive, from the members' announcements."""
        lengths, values, *_, last = told
        batches = () if self.features.stride is None else tuple(last)
        return _Sizes(lengths=list(lengths), values=list(values), batches=batches)

    def issue(self, received: _Sizes) -> None:
        """Send all tensors without awaiting any."""
        features, route, sent = self.features, self.route, self.sent

        def issue(name: str, tensor: Tensor, sends: Sequence[int], receives: Sequence[int]) -> None:
            output = tensor.new_empty(sum(receives))
            label = f"{route.label}.{name}"
            self.works[name] = self.rank.all_to_all_single(
                output, tensor, receives, sends, route.group, label=label, role=IDS
            )

        issue("lengths", features.lengths, sent.lengths, received.lengths)
        issue("values", features.values, sent.values, received.values)
        if features.stride is None:
            strides = send_to_device(torch.tensor(features.stride_per_key, dtype=torch.int64), features.lengths.device)
            issue("strides", strides, route.keys_per_rank, [len(route.keys)] * route.group.size)
        if features.weights is not None:
            issue("weights", features.weights, sent.values, received.values)

    async def arrive(self, received: _Sizes) -> Arrived:
        done = {name: await work for name, work in self.works.items()}
        by_source: list[list[int]] | None = None
        if "strides" in done:
            by_source = done["strides"].view(-1, len(self.route.keys)).tolist() if self.route.keys else []
        return Arrived(
            values=done["values"],
            lengths=done["lengths"],
            weights=done.get("weights"),
            batches=received.batches,
            strides=by_source,
            ids=self._counted_ids(),
        )

    def _counted_ids(self) -> list[int] | None:
        """Return the numbers of ids that each source sends to this rank, by key, if ids are counted."""
        counted, route = self.features.counted, self.route
        if counted is None:
            return None
        first = sum(route.keys_per_rank[: route.group.index(self.rank.rank)])
        ids: list[int] = counted.by_rank[list(route.group.ranks), first : first + len(route.keys)].ravel().tolist()
        return ids


def _tell(rank: Rank, rows: list[list[int]], group: Group, label: str) -> Work[Tensor]:
    """Announce `rows`, each with a number for each member."""
    sent = send_to_device(torch.tensor(rows, dtype=torch.int64).t().contiguous(), rank.control_device)
    return rank.all_to_all_single(torch.empty_like(sent), sent, group=group, label=f"{label}.splits", role=SIZES)


def _rows(came: Tensor) -> list[list[int]]:
    """Return all members' announcements, row by row."""
    rows: list[list[int]] = came.t().tolist()
    return rows


async def _announce_sizes(rank: Rank, moving: Sequence[_Moving], label: str) -> list[list[list[int]]]:
    """Announce the sizes of all exchanges in one call, and return those that arrive, by exchange."""
    if not moving:
        return []
    each = [one.sizes() for one in moving]
    came = iter(_rows(await _tell(rank, [row for rows in each for row in rows], moving[0].route.group, label)))
    return [[next(came) for _ in rows] for rows in each]
