"""Draws bags of ids from a seed, and says into which bucket the specification puts one id."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from real.check.cases.bits import torch_dtype
from scenarios.sparse.keyed_jagged import KeyedJagged

Bag = list[int]


def bags_of(rows: Sequence[int], batches: Sequence[int], longest: int, dtype: str, *key: object) -> list[list[Bag]]:
    """For each feature and sample up to `longest` ids: rows of its table, and sometimes ids beyond them all."""
    draw = random.Random(repr(key))
    return [
        [[_id(draw, size, dtype) for _ in range(draw.randint(0, longest))] for _ in range(batch)]
        for size, batch in zip(rows, batches, strict=True)
    ]


def weights_of(bags: Sequence[Sequence[Bag]], *key: object) -> list[list[Bag]]:
    """A small whole number for each id, in the same bags."""
    draw = random.Random(repr((*key, "weights")))
    return [[[draw.randint(-3, 3) for _ in bag] for bag in of_feature] for of_feature in bags]


def positions_of(bags: Sequence[Sequence[Bag]]) -> list[list[Bag]]:
    """Each id's place in its bag."""
    return [[list(range(len(bag))) for bag in of_feature] for of_feature in bags]


def features_of(
    keys: Sequence[str],
    bags: Sequence[Sequence[Bag]],
    weights: Sequence[Sequence[Bag]] | None,
    dtypes: tuple[str, str],
    *,
    stride: int | None,
    device: torch.device,
) -> KeyedJagged:
    """The bags as a rank holds them. `dtypes`: of ids and of lengths; without `stride` each key has its own."""
    return KeyedJagged(
        keys=tuple(keys),
        values=ids_tensor(flat(bags), dtypes[0]).to(device),
        lengths=torch.tensor(
            [len(bag) for of_key in bags for bag in of_key], dtype=torch_dtype(dtypes[1]), device=device
        ),
        weights=None if weights is None else torch.tensor(flat(weights), dtype=torch.float32, device=device),
        stride=stride,
        stride_per_key_per_rank=None if stride is not None else tuple((len(of_key),) for of_key in bags),
    )


def flat(bags: Sequence[Sequence[Bag]]) -> Bag:
    """All ids, in order."""
    return [item for of_key in bags for bag in of_key for item in bag]


def ids_tensor(ids: Sequence[int], dtype: str) -> Tensor:
    """Ids that are read as unsigned, in their signed dtype."""
    width = 8 * torch_dtype(dtype).itemsize
    signed = [unsigned(item, dtype) - (1 << width) * (unsigned(item, dtype) >> width - 1) for item in ids]
    return torch.tensor(signed, dtype=torch_dtype(dtype))


def unsigned(item: int, dtype: str) -> int:
    """An id as it is read."""
    return item % (1 << 8 * torch_dtype(dtype).itemsize)


def bucket_of(item: int, block: int, buckets: int) -> tuple[int, int]:
    """The bucket that an unsigned id falls into, and its id there."""
    return divmod(item, block) if item < block * buckets else (item % buckets, item // buckets)


def unbucketized(item: int, bucket: int, block: int, buckets: int) -> int:
    """The unsigned id again: one that was beyond all rows is still beyond its block."""
    return bucket * block + item if item < block else item * buckets + bucket


def block_of(rows: int, buckets: int) -> int:
    """Rows of a bucket."""
    return -(-rows // buckets)


def _id(draw: random.Random, rows: int, dtype: str) -> int:
    largest = (1 << 8 * torch_dtype(dtype).itemsize - 1) - 1
    beyond = (rows, rows + 1, 2 * rows + 3, largest, -1, -largest - 1)
    return draw.choice(beyond) if draw.random() < 0.2 else draw.randrange(rows)
