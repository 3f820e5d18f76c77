"""Which buckets are reduced, against a DDP that makes whatever buckets a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from real.ddp.buckets import BucketLayout, Regrouping

COUNT = 6


class Fake:
    """A bucket of some parameters, each with its number as gradient."""

    def __init__(self, index: int, parameters: Sequence[Tensor], members: Sequence[int], *, is_last: bool) -> None:
        self._index, self._is_last = index, is_last
        self._parameters = [parameters[member] for member in members]
        self.values = torch.cat([torch.full((len(parameters[member]),), float(member)) for member in members])

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._is_last

    def parameters(self) -> list[Tensor]:
        return self._parameters

    def buffer(self) -> Tensor:
        return self.values

    def gradients(self) -> list[Tensor]:
        return list(self.values.split([len(parameter) for parameter in self._parameters]))


def parameters(count: int = COUNT) -> list[Tensor]:
    return [torch.zeros(number + 1) for number in range(count)]


def step(regrouping: Regrouping, model: list[Tensor], members: Sequence[Sequence[int]], remembers: bool) -> Any:
    """Indices, numbers and whether it is the last, of every reduction of a step; each adds 100 to its gradients."""
    reduced: list[tuple[int, list[int], bool]] = []

    def reduce(bucket: Any) -> None:
        reduced.append((bucket.index(), bucket.buffer().unique_consecutive().int().tolist(), bucket.is_last()))
        bucket.buffer().add_(100)

    buckets = [Fake(index, model, each, is_last=index == len(members) - 1) for index, each in enumerate(members)]
    for bucket in buckets:
        for reduction in regrouping.take(bucket, remembers):
            reduction.play(reduce)
    for bucket, each in zip(buckets, members, strict=True):
        expected = torch.cat([torch.full((member + 1,), 100.0 + member) for member in each])
        assert torch.equal(bucket.values, expected), "every gradient is reduced once"
    return reduced


ALL = [tuple(range(COUNT))]
LATER = [(5, 4), (3,), (2, 1, 0)]
WHOLE_STEP = [(0, [0, 1, 2, 3, 4, 5], True)]
LATER_STEP = [(0, [5, 4], False), (1, [3], False), (2, [2, 1, 0], True)]


def stored_after_two_steps() -> BucketLayout:
    layout, model = BucketLayout(), parameters()
    regrouping = Regrouping(layout)
    assert step(regrouping, model, ALL, False) == WHOLE_STEP
    assert step(regrouping, model, LATER, False) == LATER_STEP
    assert layout.buckets == LATER
    return layout


@pytest.mark.parametrize("remembers", [True, False])
def test_a_stored_layout_is_played_while_ddp_has_its_first_buckets(remembers: bool) -> None:
    layout, model = stored_after_two_steps(), parameters()
    regrouping = Regrouping(layout)
    for _ in range(2):
        assert step(regrouping, model, ALL, remembers) == LATER_STEP
    assert step(regrouping, model, LATER, remembers) == LATER_STEP
    assert layout.buckets == LATER


def test_without_memory_the_layout_follows_ddp_once_it_has_made_its_buckets() -> None:
    layout, model = stored_after_two_steps(), parameters()
    regrouping = Regrouping(layout)
    step(regrouping, model, ALL, False)
    assert step(regrouping, model, [(5, 4, 3), (2, 1, 0)], False) == [(0, [5, 4, 3], False), (1, [2, 1, 0], True)]
    assert layout.buckets == [(5, 4, 3), (2, 1, 0)]


def test_with_memory_the_layout_stays_whatever_ddp_does() -> None:
    layout, model = stored_after_two_steps(), parameters()
    regrouping = Regrouping(layout)
    for members in (ALL, [(5, 4), (2, 1, 0, 3)], [(0,), (1,), (2, 3, 4, 5)], LATER):
        assert step(regrouping, model, members, True) == LATER_STEP
    assert layout.buckets == LATER


def test_a_step_that_was_broken_off_leaves_nothing_behind() -> None:
    layout, model = stored_after_two_steps(), parameters()
    regrouping = Regrouping(layout)
    first = [(0, 1), (2, 3, 4, 5)]
    assert not regrouping.take(Fake(0, model, first[0], is_last=False), True)
    assert step(regrouping, model, first, True)[0] == (0, [5, 4], False)


partitions = st.permutations(range(COUNT)).flatmap(
    lambda order: st.sets(st.integers(1, COUNT - 1)).map(
        lambda cuts: [
            tuple(order[begin:end]) for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), COUNT], strict=True)
        ]
    )
)


@given(partitions, st.lists(partitions, min_size=1, max_size=4))
def test_whatever_buckets_ddp_makes_memory_keeps_its_own(remembered: Any, steps: Any) -> None:
    layout, model = BucketLayout(), parameters()
    regrouping = Regrouping(layout)
    step(regrouping, model, ALL, False)
    expected = step(regrouping, model, remembered, False)
    for members in steps:
        assert step(regrouping, model, members, True) == expected


def refusal(regrouping: Regrouping, model: list[Tensor], members: Sequence[Sequence[int]]) -> str:
    with pytest.raises(ValueError, match="expected") as caught:
        step(regrouping, model, members, True)
    return str(caught.value)


def test_mistakes_are_sentences() -> None:
    layout = stored_after_two_steps()
    assert refusal(Regrouping(layout), [torch.zeros(9), *parameters()[1:]], ALL) == (
        "parameter 0 of the model is (9,) torch.float32, expected (1,) torch.float32 as in the model that the PowerSGD"
        " state was stored with"
    )
    assert refusal(Regrouping(layout), parameters(7), [tuple(range(7))]) == (
        "parameter 6 of the model is (7,) torch.float32, expected none as in the model that the PowerSGD state was"
        " stored with"
    )
    assert refusal(Regrouping(layout), parameters(5), [tuple(range(5))]) == (
        "the model has 5 parameters with gradients, expected 6 as in the model that the PowerSGD state was stored with"
    )
    regrouping, model = Regrouping(layout), parameters()
    step(regrouping, model, ALL, True)
    assert refusal(regrouping, model, [(0, 1, 2, 3, 5)]) == (
        "DistributedDataParallel reduces parameters [0, 1, 2, 3, 5], expected [0, 1, 2, 3, 4, 5] as in the buckets that"
        " the PowerSGD state remembers"
    )
    assert refusal(regrouping, parameters(), ALL) == (
        "bucket 0 has a parameter of shape (1,) that was in none of the first step: expected a PowerSGD state of its"
        " own for each DistributedDataParallel"
    )
