"""The input exchanges, one per way of cutting tables, which send ids to the ranks that look them up.

Results equal those of TorchRec 1.8.0's SparseFeaturesDist classes of the same names. All take features with keys in
sending order, and return this rank's keys with the samples of all ranks. Groups come from the calling rank; the group
given to a constructor only names the participants, so that one object serves every rank and stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.roles import IDS
from scenarios.sparse.bucketize import block_bucketize, bucketize_kernel
from scenarios.sparse.feature_exchange import Route, Sending, chunks_kernel, exchange_one
from scenarios.sparse.keyed_jagged import KeyedJagged

LABEL = "input_dist"


class InputDist:
    """An input exchange: called, it returns this rank's features, whose ids are rows of its shards.

    Where it cuts rows, the values of the given features must be real.
    """

    async def __call__(self, rank: Rank, features: KeyedJagged) -> KeyedJagged:
        return await exchange_one(rank, await self.prepare(rank, features))

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """Return the features to send, with their route."""
        raise NotImplementedError


class TwRwSparseFeaturesDist(InputDist):
    """The exchange of tables on one host each, cut by rows over its ranks; also of grids, host by host.

    Samples of every key are returned staggered: for local rank x, for host y, those of rank y * local_size + x.

    Args:
        pg: the participating ranks, `local_size` of them per host.
        features_per_rank: features of each rank, equal on all ranks of a host (the host's first rank decides).
        feature_hash_sizes: rows of the features' tables; features come host by host.
        has_feature_processor: send each id's position in its bag as its weight, if there are no weights.
        need_pos: do so even if there are weights, with a warning that they are replaced.

    Raises:
        ValueError: sizes do not fit each other.
    """

    def __init__(
        self,
        pg: Group,
        local_size: int,
        features_per_rank: Sequence[int],
        feature_hash_sizes: Sequence[int],
        device: torch.device | None = None,
        has_feature_processor: bool = False,
        need_pos: bool = False,
        *,
        label: str = LABEL,
    ) -> None:
        if local_size < 1 or pg.size % local_size:
            raise ValueError(f"local_size = {local_size}: expected a divisor of the group's size {pg.size}")
        hosts = pg.size // local_size
        _check("features_per_rank", len(features_per_rank), pg.size)
        self.features_per_node = tuple(features_per_rank[host * local_size] for host in range(hosts))
        _check("feature_hash_sizes", len(feature_hash_sizes), sum(self.features_per_node))
        self.pg, self.local_size, self.device, self.label = pg, local_size, device, label
        self.block_sizes = tuple(block_size(rows, local_size) for rows in feature_hash_sizes)
        self.has_feature_processor, self.need_pos = has_feature_processor, need_pos
        self.staggered_shuffle = staggered_shuffle(self.features_per_node, local_size)
        self.source_order = staggered_sources(hosts, local_size)

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """Bucketize the features, and return them with their route."""
        group = group_of(self.pg, rank)
        cut = await self.bucketized(rank, features)
        return Sending(features=cut, route=self.route(group, features.keys, group.index(rank.rank)))

    async def bucketized(self, rank: Rank, features: KeyedJagged) -> KeyedJagged:
        """Return the features to send, bucketized by local rank, in the order of the receivers."""
        position = wants_positions(features, self.has_feature_processor, self.need_pos)
        cut, _ = await bucketize_features(
            rank,
            features,
            self.block_sizes,
            self.local_size,
            positions=position,
            device=self.device,
            label=self.label,
        )
        # In order already, as with one host: a permutation would copy every tensor for nothing.
        if self.staggered_shuffle == tuple(range(len(self.staggered_shuffle))):
            return cut
        kernel = chunks_kernel(1.0, cut.lengths, cut.values, cut.weights)
        return await rank.compute(kernel, cut.permute, self.staggered_shuffle, label=f"{self.label}.shuffle", role=IDS)

    def route(self, group: Group, keys: Sequence[str], index: int) -> Route:
        """Return the route as group rank `index` sees it."""
        host = index // self.local_size
        start = sum(self.features_per_node[:host])
        return Route(
            group=group,
            keys_per_rank=tuple(count for count in self.features_per_node for _ in range(self.local_size)),
            keys=tuple(keys[start : start + self.features_per_node[host]]),
            source_order=self.source_order,
            label=self.label,
        )


class TwSparseFeaturesDist(InputDist):
    """The exchange of whole tables, or blocks of columns: rank r takes `features_per_rank[r]` features, in order.

    Raises:
        ValueError: the number of ranks differs.
    """

    def __init__(
        self, pg: Group, features_per_rank: Sequence[int], *, device: torch.device | None = None, label: str = LABEL
    ) -> None:
        _check("features_per_rank", len(features_per_rank), pg.size)
        self.pg, self.features_per_rank, self.device, self.label = pg, tuple(features_per_rank), device, label

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """Return the features on the payload's device, with their route."""
        group = group_of(self.pg, rank)
        index = group.index(rank.rank)
        start = sum(self.features_per_rank[:index])
        route = Route(
            group=group,
            keys_per_rank=self.features_per_rank,
            keys=features.keys[start : start + self.features_per_rank[index]],
            label=self.label,
        )
        return Sending(features=features.to_payload(self.device or rank.device), route=route, own=features)


class RwSparseFeaturesDist(InputDist):
    """The exchange of tables cut by rows over all ranks: each rank takes all features, with the ids of its rows.

    `has_feature_processor` and `need_pos` as in TwRwSparseFeaturesDist. Rows are returned to their ids if
    `is_sequence`.

    Raises:
        ValueError: the number of features differs.
    """

    def __init__(
        self,
        pg: Group,
        num_features: int,
        feature_hash_sizes: Sequence[int],
        *,
        device: torch.device | None = None,
        has_feature_processor: bool = False,
        need_pos: bool = False,
        is_sequence: bool = False,
        label: str = LABEL,
    ) -> None:
        _check("feature_hash_sizes", len(feature_hash_sizes), num_features)
        self.is_sequence = is_sequence
        self.pg, self.device, self.label = pg, device, label
        self.block_sizes = tuple(block_size(rows, pg.size) for rows in feature_hash_sizes)
        self.has_feature_processor, self.need_pos = has_feature_processor, need_pos

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """Bucketize the features, and return them with their route; for a sequence, also with each id's place after."""
        group, keys = group_of(self.pg, rank), features.keys
        cut, moved = await bucketize_features(
            rank,
            features,
            self.block_sizes,
            group.size,
            positions=wants_positions(features, self.has_feature_processor, self.need_pos),
            sequence=self.is_sequence,
            device=self.device,
            label=self.label,
        )
        route = Route(group=group, keys_per_rank=(len(keys),) * group.size, keys=keys, label=self.label)
        return Sending(features=cut, route=route, own=features, moved=moved)


class DpSparseFeaturesDist(InputDist):
    """The exchange of copied tables, which every rank holds: nothing is sent."""

    def __init__(self, *, device: torch.device | None = None) -> None:
        self.device = device

    async def prepare(self, rank: Rank, features: KeyedJagged) -> Sending:
        """Return the features without a route."""
        return Sending(features=features.to_payload(self.device or rank.device), own=features)


async def bucketize_features(
    rank: Rank,
    features: KeyedJagged,
    block_sizes: Sequence[int],
    buckets: int,
    *,
    positions: bool,
    sequence: bool = False,
    device: torch.device | None,
    label: str,
) -> tuple[KeyedJagged, Tensor | None]:
    """Repeat all keys for every bucket, bucket by bucket; with `positions` these replace the weights.

    Returns:
        The bucketized features; with `sequence`, also the place of each id among them.
    """
    weights = None if positions else features.weights
    asked: Any = {"sequence": sequence, "is_checked": features.ids_per_key is not None}
    counted = None if features.counted is None else features.counted.bucketize(features.keys, block_sizes, buckets)
    cut = partial(
        block_bucketize,
        weights=weights,
        bucketize_pos=positions,
        batch_size_per_feature=features.stride_per_key,
        device=device or rank.device,
        **asked,
    )
    kernel = bucketize_kernel(features.lengths, features.values, buckets, weights, positions=positions, **asked)
    given = (features.lengths, features.values, block_sizes, buckets)
    done = await rank.compute(kernel, cut, *given, label=f"{label}.bucketize", role=IDS)
    # Bucketizing changes the counts: only the device knows the new ones, unless ids are counted.
    by_rank = features.stride_per_key_per_rank
    cut_features = KeyedJagged(
        keys=features.keys * buckets,
        values=done.values,
        lengths=done.lengths,
        weights=done.positions if positions else done.weights,
        stride=features.stride,
        stride_per_key_per_rank=None if by_rank is None else by_rank * buckets,
        ids_per_key=None if counted is None else counted.of_rank(rank.rank),
        counted=counted,
    )
    return cut_features, done.unbucketize_permute


def wants_positions(features: KeyedJagged, has_feature_processor: bool, need_pos: bool) -> bool:
    """Return whether positions are sent as weights; warn if they replace the user's weights."""
    if features.weights is None:
        return has_feature_processor
    if need_pos:
        warnings.warn("need_pos: positions are sent in place of the features' own weights", UserWarning, stacklevel=2)
    return need_pos


def staggered_shuffle(features_per_node: Sequence[int], local_size: int) -> tuple[int, ...]:
    """Return the order of bucketized keys (bucket-major) by receiver: host by host, local rank by local rank."""
    total = sum(features_per_node)
    order, start = [], 0
    for count in features_per_node:
        order += [bucket * total + start + key for bucket in range(local_size) for key in range(count)]
        start += count
    return tuple(order)


def staggered_sources(hosts: int, local_size: int) -> tuple[int, ...]:
    """Return source ranks sorted by local rank, then host, so that a reduce-scatter within a host cuts between local
    ranks.
    """
    return tuple(host * local_size + local for local in range(local_size) for host in range(hosts))


def block_size(rows: int, buckets: int) -> int:
    """Return the rows of each bucket but the last ones: rows / buckets, rounded up."""
    return -(-rows // buckets)


def group_of(pg: Group, rank: Rank) -> Group:
    """Return `pg` on the stream of `rank`: the rank's world if `pg` consists of its places, else `pg` itself."""
    return rank.world if pg.ranks == rank.places else pg


def _check(name: str, given: int, expected: int) -> None:
    if given != expected:
        raise ValueError(f"{name} has {given} items, expected {expected}")
