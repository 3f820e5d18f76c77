"""Keyed jagged features as the recorded exchanges hold them: read from a case, and compared with what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from scenarios.seam.backend import Work
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.sparse.keyed_jagged import KeyedJagged
from tests.vectors.fields import COUNT, FLAG, NUMBER, SIZE, TEXT, WHOLE, Each, Fields, Kind, Maybe, VectorError, one_of

DTYPE = one_of("int32", "int64", "float32")
IDS = one_of("int32", "int64")
# A note decides the dtype of positions: ours keep that of the ids on CPU too.
POSITIONS_NOTE = (
    "positions cast to float32 between bucketize and permute: torchrec on CPU otherwise raises NotImplementedError"
    " permute_2D_indices_weights_kernel_3 not implemented for 'Long'; on GPU positions keep the index dtype"
)

GIVEN: dict[str, Kind] = {
    "lengths": Each(COUNT),
    "values": Each(WHOLE),
    "weights": Maybe(Each(NUMBER)),
    "stride": Maybe(COUNT),
}
INPUT = Fields(GIVEN, {"stride_per_key": Each(COUNT)})
OUTPUT = Fields(
    {
        "keys": Each(TEXT),
        "lengths": Each(COUNT),
        "values": Each(WHOLE),
        "weights": Maybe(Each(NUMBER)),
        "dtypes": Each(Maybe(DTYPE)),
    },
    {"stride": COUNT, "stride_per_key_per_rank": Each(Each(COUNT))},
)
EXCHANGE: dict[str, Kind] = {
    "id": TEXT,
    "tag": TEXT,
    "world_size": SIZE,
    "local_size": SIZE,
    "features_per_node": Each(COUNT),
    "features_per_rank": Each(COUNT),
    "keys": Each(TEXT),
    "hash_sizes": Each(COUNT),
    "has_feature_processor": FLAG,
    "need_pos": FLAG,
    "index_dtype": IDS,
    "length_dtype": IDS,
    "inputs": Each(INPUT),
    "block_sizes": Each(COUNT),
    "staggered_shuffle": Each(COUNT),
}
NOTE: dict[str, Kind] = {"note": one_of(POSITIONS_NOTE)}


def check_ranks(case: dict[str, Any], where: str, by_rank: Mapping[str, Sequence[object]]) -> None:
    """One entry a rank, and whole hosts."""
    world, local = case["world_size"], case["local_size"]
    if world % local:
        raise VectorError(f"{where}: local_size = {local}: expected a divisor of world_size {world}")
    for name, items in by_rank.items():
        if len(items) != world:
            raise VectorError(f"{where}: {name} has {len(items)} items, expected one a rank: {world}")


def check_features_per_rank(case: dict[str, Any], where: str) -> None:
    """The ranks of a host say the same, and so does the host."""
    said, local = case["features_per_rank"], case["local_size"]
    expected = [count for count in case["features_per_node"] for _ in range(local)]
    if said != expected:
        raise VectorError(f"{where}.features_per_rank = {said}: expected {expected} of features_per_node")


def features_of(case: dict[str, Any], given: dict[str, Any], keys: Sequence[str]) -> KeyedJagged:
    weights, per_key = given["weights"], given.get("stride_per_key")
    return KeyedJagged(
        keys=tuple(keys),
        values=torch.tensor(given["values"], dtype=getattr(torch, case["index_dtype"])),
        lengths=torch.tensor(given["lengths"], dtype=getattr(torch, case["length_dtype"])),
        weights=None if weights is None else torch.tensor(weights, dtype=torch.float32),
        stride=given["stride"],
        stride_per_key_per_rank=None if per_key is None else tuple((stride,) for stride in per_key),
    )


def check_features(got: KeyedJagged | None, expected: dict[str, Any] | None, positions: str | None) -> None:
    """The recorded features, with `positions` for the dtype of weights that are positions."""
    if got is None or expected is None:
        assert got is expected
        return
    assert list(got.keys) == expected["keys"]
    assert got.lengths.tolist() == expected["lengths"]
    assert got.values.tolist() == expected["values"]
    assert plain(got.weights) == round_values(expected["weights"], got.weights)
    assert got.stride == expected.get("stride")
    by_rank = got.stride_per_key_per_rank
    assert (None if by_rank is None else [list(row) for row in by_rank]) == expected.get("stride_per_key_per_rank")
    lengths, values, weights = expected["dtypes"]
    dtypes = [lengths, values, positions or weights]
    assert [dtype_name(tensor) for tensor in (got.lengths, got.values, got.weights)] == dtypes


def plain(tensor: Tensor | None) -> list[float] | None:
    return None if tensor is None else tensor.tolist()


def round_values(values: list[float] | None, like: Tensor | None) -> list[float] | None:
    """As a floating dtype holds them; whole numbers stay as they were written."""
    if values is None or like is None or not like.is_floating_point():
        return values
    return plain(torch.tensor(values, dtype=like.dtype))


def dtype_name(tensor: Tensor | None) -> str | None:
    return None if tensor is None else str(tensor.dtype).removeprefix("torch.")


class NotingRank:
    """A rank that notes how its exchanges are split: elements to each rank, by label."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.splits: dict[str, list[int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: Group | None = None,
        *,
        label: str,
        role: str = "",
    ) -> Work[Tensor]:
        ranks = self._rank.world_size if group is None else group.size
        rows, width = input_split_sizes or [len(input) // ranks] * ranks, input[:1].numel() or 1
        self.splits[label.removeprefix("input_dist.")] = [count * width for count in rows]
        splits = output_split_sizes, input_split_sizes
        return self._rank.all_to_all_single(output, input, *splits, group, label=label, role=role)
