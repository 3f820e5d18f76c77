"""Draws bags of ids from a seed, and computes the bucket of one id as the specification does."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from real.check.cases.error_classes import torch_dtype
from scenarios.sparse.keyed_jagged import KeyedJagged

Bag = list[int]


def bags_of(rows: Sequence[int], batches: Sequence[int], longest: int, dtype: str, *key: object) -> list[list[Bag]]:
    """Draw for each feature and sample up to `longest` ids: rows of the feature's table, sometimes ids beyond the last
    row; `key` seeds the draws.
    """
    draw = random.Random(repr(key))
    return [
        [[_id(draw, size, dtype) for _ in range(draw.randint(0, longest))] for _ in range(batch)]
        for size, batch in zip(rows, batches, strict=True)
    ]


def weights_of(bags: Sequence[Sequence[Bag]], *key: object) -> list[list[Bag]]:
    """Draw a small whole number for each id, in the same bags."""
    draw = random.Random(repr((*key, "weights")))
    return [[[draw.randint(-3, 3) for _ in bag] for bag in of_feature] for of_feature in bags]


def positions_of(bags: Sequence[Sequence[Bag]]) -> list[list[Bag]]:
    """Return each id's position in its bag, in the same bags."""
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
    """Return the bags, ids by feature and sample, as a rank's features.

    `dtypes` are of ids and of lengths; `stride` is the samples of every feature, None if each has its own number.
    """
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
    """Return all ids, in order."""
    return [item for of_key in bags for bag in of_key for item in bag]


def ids_tensor(ids: Sequence[int], dtype: str) -> Tensor:
    """Return unsigned ids in their signed dtype."""
    width = 8 * torch_dtype(dtype).itemsize
    # torch refuses numbers beyond the signed range: the upper half of unsigned ids becomes negative.
    signed = [as_unsigned(item, dtype) - (1 << width) * (as_unsigned(item, dtype) >> width - 1) for item in ids]
    return torch.tensor(signed, dtype=torch_dtype(dtype))


def as_unsigned(item: int, dtype: str) -> int:
    """Return an id as an unsigned number of its dtype's width."""
    return item % (1 << 8 * torch_dtype(dtype).itemsize)


def bucket_of(item: int, block: int, buckets: int) -> tuple[int, int]:
    """Return the bucket of an unsigned id, and its id within the bucket."""
    return divmod(item, block) if item < block * buckets else (item % buckets, item // buckets)


def unbucketize(item: int, bucket: int, block: int, buckets: int) -> int:
    """Invert `bucket_of`: return the unsigned id; ids beyond all rows are beyond their block too."""
    return bucket * block + item if item < block else item * buckets + bucket


def block_of(rows: int, buckets: int) -> int:
    """Return the rows of a bucket."""
    return -(-rows // buckets)


def _id(draw: random.Random, rows: int, dtype: str) -> int:
    largest = (1 << 8 * torch_dtype(dtype).itemsize - 1) - 1
    # One id in five lies outside of the table: the exchanges must send such ids, too.
    beyond = (rows, rows + 1, 2 * rows + 3, largest, -1, -largest - 1)
    return draw.choice(beyond) if draw.random() < 0.2 else draw.randrange(rows)
