"""TwRwSparseFeaturesDist as TorchRec 0.2.0 documents it, for code written against it; today's form is `input_dist`.

Ids with and without scores travel in two exchanges of their own. Sizes are not exchanged first: every rank must have
the same batch, and the lengths that arrive say how many ids will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse.feature_exchange import Arrived, Route, per_rank, reorder
from scenarios.sparse.input_dist import LABEL, group_of
from scenarios.sparse.input_dist import TwRwSparseFeaturesDist as _Today
from scenarios.sparse.keyed_jagged import KeyedJagged, chunk_sums


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFeatures:
    """Features without scores and features with (`weights`); either may be missing."""

    id_list_features: KeyedJagged | None = None
    id_score_list_features: KeyedJagged | None = None


class TwRwSparseFeaturesDist:
    """Each table on one host, cut by rows over its ranks.

    `pg` names all ranks and `intra_pg` those of one host; `..._features_per_rank[r]` features go to rank r, the same
    number on all ranks of a host; `..._hash_sizes` are their tables' rows. With `has_feature_processor` each id of the
    features without scores carries its position in its bag, in place of a weight that it may have.

    Raises:
        ValueError: sizes that do not fit each other.
    """

    def __init__(
        self,
        pg: Group,
        intra_pg: Group,
        id_list_features_per_rank: Sequence[int],
        id_score_list_features_per_rank: Sequence[int],
        id_list_feature_hash_sizes: Sequence[int],
        id_score_list_feature_hash_sizes: Sequence[int],
        device: torch.device | None = None,
        has_feature_processor: bool = False,
    ) -> None:
        self.pg = pg
        self.id_list = _Today(
            pg,
            intra_pg.size,
            id_list_features_per_rank,
            id_list_feature_hash_sizes,
            device,
            has_feature_processor,
            need_pos=has_feature_processor,
            label=f"{LABEL}.id_list",
        )
        self.id_score_list = _Today(
            pg,
            intra_pg.size,
            id_score_list_features_per_rank,
            id_score_list_feature_hash_sizes,
            device,
            label=f"{LABEL}.id_score_list",
        )

    async def __call__(self, rank: Rank, sparse_features: SparseFeatures) -> SparseFeatures:
        """This rank's features of both kinds; a kind with no features anywhere comes out as none.

        Raises:
            ValueError: a batch that differs by key.
        """
        return SparseFeatures(
            id_list_features=await self._one(rank, self.id_list, sparse_features.id_list_features),
            id_score_list_features=await self._one(rank, self.id_score_list, sparse_features.id_score_list_features),
        )

    async def _one(self, rank: Rank, dist: _Today, features: KeyedJagged | None) -> KeyedJagged | None:
        if features is None or not sum(dist.features_per_node):
            return None
        if features.stride is None:
            raise ValueError("TwRwSparseFeaturesDist 0.2.0: a batch that differs by key is not supported")
        group = group_of(self.pg, rank)
        sent = await dist.bucketized(rank, features)
        return await _exchange(rank, sent, dist.route(group, features.keys, group.index(rank.rank)))


async def _exchange(rank: Rank, features: KeyedJagged, route: Route) -> KeyedJagged:
    """Lengths first; they say how many values come from each rank."""
    stride, ranks, group = features.stride, route.group.size, route.group
    assert stride is not None
    if ranks == 1:
        return replace(features, keys=route.keys, batch_per_rank=(stride,))
    bags = [count * stride for count in route.keys_per_rank]
    mine = [len(route.keys) * stride] * ranks
    lengths = features.lengths.new_empty(sum(mine))
    await rank.all_to_all_single(lengths, features.lengths, mine, bags, group, label=f"{route.label}.lengths")
    receives, sends = chunk_sums(lengths, mine), per_rank(features.length_per_key(), route.keys_per_rank)
    values = features.values.new_empty(sum(receives))
    work = rank.all_to_all_single(values, features.values, receives, sends, group, label=f"{route.label}.values")
    weights = None
    if features.weights is not None:
        weights = features.weights.new_empty(sum(receives))
        await rank.all_to_all_single(weights, features.weights, receives, sends, group, label=f"{route.label}.weights")
    await work
    arrived = Arrived(values=values, lengths=lengths, weights=weights, batches=(stride,) * ranks)
    return await reorder(rank, arrived, route)
