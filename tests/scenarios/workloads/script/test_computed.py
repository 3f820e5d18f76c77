"""Counts of unknown values: bags of ids that are given to the ranks of their rows."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.values.computed import even_bags

NAMES = ("lengths", "indices", "bucketize_pos", "sequence", "block_sizes", "my_size")


def bucketize(lengths: Tensor, ranks: int, known: Tensor | None) -> tuple[Tensor, ...] | None:
    arguments = [SimpleNamespace(name=name) for name in NAMES]
    schema = SimpleNamespace(name="fbgemm::block_bucketize_sparse_features", arguments=arguments)
    ids = torch.empty(int(lengths.sum()), dtype=torch.int64, device="meta")
    made = [torch.empty(ranks * lengths.numel(), dtype=lengths.dtype, device="meta"), ids]
    block_sizes = torch.tensor([1])
    func = SimpleNamespace(_schema=schema)
    return even_bags(
        func,
        (lengths, ids, False),
        {"sequence": False, "block_sizes": block_sizes, "my_size": ranks},
        made,
        lambda _: known,
    )


def test_ids_of_a_bag_are_divided_evenly_among_ranks() -> None:
    lengths = torch.tensor([3, 0, 4, 7], dtype=torch.int32)
    found = bucketize(lengths, 3, lengths)
    assert found is not None
    counts, ids = found
    assert counts.dtype == torch.int32
    assert counts.view(3, 4).sum(0).tolist() == lengths.tolist()
    assert int(counts.max() - counts.view(3, 4)[:, 3].min()) <= 1
    assert counts.view(3, 4).sum(1).tolist() == [5, 4, 5]
    assert ids.is_meta


def test_of_unknown_lengths_nothing_is_said() -> None:
    assert bucketize(torch.tensor([1]), 2, None) is None
