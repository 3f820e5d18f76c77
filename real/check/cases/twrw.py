"""Checks the input exchange of tables that lie on one host each, cut by rows over its ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from real.check.cases.bags import (
    as_unsigned,
    bags_of,
    block_of,
    bucket_of,
    features_of,
    ids_tensor,
    positions_of,
    weights_of,
)
from real.check.cases.case import Case, RankGroups
from real.check.cases.error_classes import torch_dtype
from scenarios.seam.group import Group
from scenarios.sparse.input_dist import TwRwSparseFeaturesDist


@dataclass(frozen=True, kw_only=True, repr=False)
class Twrw(Case):
    """A set of tables of `rows`, the first `features[0]` of them on host 0, the next `features[1]` on host 1, and so
    on.

    A rank has `batches[rank][feature]` samples if `is_per_key`, else `batches[rank][0]` samples of every feature.
    """

    features: tuple[int, ...]
    rows: tuple[int, ...] = ()
    batches: tuple[tuple[int, ...], ...] = ()
    is_per_key: bool = False
    longest: int = 1
    dtypes: tuple[str, str] = ("int64", "int32")
    weighted: bool = False
    has_feature_processor: bool = False
    need_pos: bool = False
    seed: int = 0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Exchange the ids of table-row-wise tables; return what this rank looks up.

        Returns: lengths, ids, weights if there are any, samples [key, source rank], batch sizes by source rank.
        """
        rank = here.rank
        bags = self.bags(rank.rank)
        features = features_of(
            [f"f{index}" for index in range(len(self.rows))],
            bags,
            weights_of(bags, self.seed, rank.rank) if self.weighted else None,
            self.dtypes,
            stride=None if self.is_per_key else self.batches[rank.rank][0],
            device=rank.device,
        )
        counts = [count for count in self.features for _ in range(self.gpus)]
        group = Group("world", tuple(range(rank.world_size)))
        options = self.has_feature_processor, self.need_pos
        got = await TwRwSparseFeaturesDist(group, self.gpus, counts, self.rows, None, *options)(rank, features)
        weights = [] if got.weights is None else [got.weights]
        strides = [list(one) for one in got.stride_per_key_per_rank or ()]
        return [got.lengths, got.values, *weights, _ints(strides), _ints(list(got.batch_per_rank))]

    def oracle(self) -> list[list[Tensor]]:
        """Return for each key, by local rank and host, that rank's samples with the ids of this bucket."""
        return [self._receive(*divmod(rank, self.gpus)) for rank in range(self.hosts * self.gpus)]

    def bags(self, rank: int) -> list[list[list[int]]]:
        """Return a rank's ids by feature and sample."""
        batches = self.batches[rank] if self.is_per_key else self.batches[rank][:1] * len(self.rows)
        return bags_of(self.rows, batches[: len(self.rows)], self.longest, self.dtypes[0], self.seed, rank)

    def _receive(self, host: int, local: int) -> list[Tensor]:
        first = sum(self.features[:host])
        keys = range(first, first + self.features[host])
        sources = [y * self.gpus + x for x in range(self.gpus) for y in range(self.hosts)]
        bags = [self._cut(source, key, local) for key in keys for source in sources]
        cells = [cell for samples in bags for bag in samples for cell in bag]
        lengths = [len(bag) for samples in bags for bag in samples]
        tensors = [torch.tensor(lengths, dtype=torch_dtype(self.dtypes[1]))]
        tensors += [ids_tensor([item for item, _, _ in cells], self.dtypes[0])]
        if self.need_pos if self.weighted else self.has_feature_processor:
            tensors += [ids_tensor([position for _, position, _ in cells], self.dtypes[0])]
        elif self.weighted:
            tensors += [torch.tensor([weight for _, _, weight in cells], dtype=torch.float32)]
        strides = [[self.batches[source][key] for source in sources] for key in keys] if self.is_per_key else []
        batches = [] if self.is_per_key else [row[0] for row in self.batches]
        return [*tensors, _ints(strides), _ints(batches)]

    def _cut(self, source: int, key: int, local: int) -> list[list[tuple[int, int, int]]]:
        """Return a rank's samples of a key: (id, position, weight) of the ids of a bucket."""
        bags = self.bags(source)
        weights, positions = weights_of(bags, self.seed, source)[key], positions_of(bags)[key]
        cut = []
        for bag, places, numbers in zip(bags[key], positions, weights, strict=True):
            placed = [bucket_of(as_unsigned(item, self.dtypes[0]), self._block(key), self.gpus) for item in bag]
            cells = zip(placed, places, numbers, strict=True)
            cut.append([(item, place, weight) for (bucket, item), place, weight in cells if bucket == local])
        return cut

    def _block(self, key: int) -> int:
        return block_of(self.rows[key], self.gpus)


def _ints(values: list[int] | list[list[int]]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
