"""What of a drawn batch moves: all of its tensors, and nothing but them changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.batches import Dense
from scenarios.workloads.dlrm.loader import MicroBatch, move_batch


def tensors_of(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            yield from tensors_of(getattr(value, one.name))


def test_every_tensor_of_a_batch_moves() -> None:
    ids = KeyedJagged(
        keys=("t",), values=torch.arange(3), lengths=torch.tensor([1, 2]), weights=torch.ones(3), stride=2
    )
    plain = dataclasses.replace(ids, weights=None)
    drawn = MicroBatch(
        is_last=True,
        features={"weighted": ids, "pooled": plain},
        dense=Dense(torch.rand(2, 4), torch.zeros(2)),
    )
    there = move_batch(drawn, torch.clone)
    before, after = list(tensors_of(drawn)), list(tensors_of(there))
    assert len(before) == len(after) == 3 + 2 + 2
    assert not {each.data_ptr() for each in before} & {each.data_ptr() for each in after}
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
