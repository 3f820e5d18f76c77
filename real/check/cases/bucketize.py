"""Checks block_bucketize of the same ids on every rank against a loop over ids."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import torch
from torch import Tensor

from real.check.cases.bags import as_unsigned, bags_of, bucket_of, flat, ids_tensor, positions_of, weights_of
from real.check.cases.case import Case, RankGroups
from real.check.cases.error_classes import torch_dtype
from scenarios.sparse.blocks import Bucketized
from scenarios.sparse.bucketize import block_bucketize, bucketize_kernel


@dataclass(frozen=True, kw_only=True, repr=False)
class Bucketize(Case):
    """A call of block_bucketize: for each of `blocks` a feature with `batches[feature]` bags of up to `longest` ids.

    The other fields are options of `block_bucketize`.
    """

    hosts: int = 1
    gpus: int = 1
    blocks: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    my_size: int = 1
    longest: int = 1
    dtypes: tuple[str, str] = ("int64", "int32")
    weighted: bool = False
    positions: bool = False
    sequence: bool = False
    bounds: tuple[tuple[int, ...], ...] | None = None
    keep: bool | tuple[bool, ...] = False
    totals: tuple[int, ...] | None = None
    seed: int = 0

    async def play(self, here: RankGroups) -> list[Tensor]:
        """Bucketize the case's ids on this rank; return the results: lengths, ids, and what else was requested."""
        ids, lengths, weights = self._draw_arguments(here.rank.device)
        kernel = bucketize_kernel(lengths, ids, self.my_size, weights, positions=self.positions)
        output = await here.rank.compute(kernel, self._run, ids, lengths, weights)
        results = (output.lengths, output.values, output.weights, output.positions, output.unbucketize_permute)
        return [tensor for tensor in results if tensor is not None]

    def oracle(self) -> list[list[Tensor]]:
        """Assign the ids to their buckets, one after the other."""
        bags = self._bags()
        weights, positions = flat(weights_of(bags, self.seed)), flat(positions_of(bags))
        places = [(feature, bag) for feature, of_key in enumerate(bags) for bag in of_key]
        count, at, cells = len(places), 0, list[tuple[int, int, int, int]]()
        for number, (feature, bag) in enumerate(places):
            for item in bag:
                bucket, local = self._bucket(feature, as_unsigned(item, self.dtypes[0]))
                cells.append((bucket, number, at, local))
                at += 1
        # Within a bucket, ids keep the order of their bags, and of a bag.
        cells.sort(key=lambda cell: cell[:3])
        lengths = [0] * (self.my_size * count)
        for bucket, number, _, _ in cells:
            lengths[bucket * count + number] += 1
        order = [cell[2] for cell in cells]
        ids, width = self.dtypes[0], torch_dtype(self.dtypes[1])
        results = [torch.tensor(lengths, dtype=width), ids_tensor([cell[3] for cell in cells], ids)]
        results += [torch.tensor([weights[index] for index in order], dtype=torch.float32)] if self.weighted else []
        results += [ids_tensor([positions[index] for index in order], ids)] if self.positions else []
        results += [ids_tensor([order.index(index) for index in range(at)], ids)] if self.sequence else []
        return [results] * (self.hosts * self.gpus)

    def _bucket(self, feature: int, item: int) -> tuple[int, int]:
        """Return the bucket of an id, and its id there, as the options' specification says."""
        total = self.my_size if self.totals is None or self.bounds is not None else self.totals[feature]
        block = self.blocks[feature] * (total // self.my_size)
        limit = block * self.my_size if self.bounds is None else self.bounds[feature][-1]
        if item >= limit:
            bucket, local = item % total // (total // self.my_size), item // total
        elif self.bounds is None:
            bucket, local = bucket_of(item, block, self.my_size)
        else:
            bucket = bisect_right(self.bounds[feature], item) - 1
            local = item - self.bounds[feature][bucket]
        keeps = self.keep if isinstance(self.keep, bool) else self.keep[feature]
        return bucket, item if keeps else local

    def _bags(self) -> list[list[list[int]]]:
        rows = [1 + 2 * block * self.my_size for block in self.blocks]
        return bags_of(rows, self.batches, self.longest, self.dtypes[0], self.seed)

    def _draw_arguments(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor | None]:
        bags = self._bags()
        lengths = torch.tensor([len(bag) for of_key in bags for bag in of_key], dtype=torch_dtype(self.dtypes[1]))
        weights = torch.tensor(flat(weights_of(bags, self.seed)), dtype=torch.float32) if self.weighted else None
        ids = ids_tensor(flat(bags), self.dtypes[0])
        return ids.to(device), lengths.to(device), None if weights is None else weights.to(device)

    def _run(self, ids: Tensor, lengths: Tensor, weights: Tensor | None) -> Bucketized:
        return block_bucketize(
            lengths,
            ids,
            self.blocks,
            self.my_size,
            weights=weights,
            bucketize_pos=self.positions,
            sequence=self.sequence,
            batch_size_per_feature=self.batches if len(set(self.batches)) > 1 else None,
            block_bucketize_pos=self.bounds,
            keep_orig_idx=self.keep,
            total_num_blocks=self.totals,
        )
