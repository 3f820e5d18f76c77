"""Cutting and joining keyed jagged features: ids stay with their bags, with values and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.sparse.keyed_jagged import KeyedJagged, concat

ERRORS: dict[str, dict[str, Any]] = {
    "KeyedJagged: give either stride or stride_per_key_per_rank": {"stride": None},
    "KeyedJagged: 3 lengths, expected 2, the sum of strides": {"lengths": torch.ones(3)},
    "KeyedJagged: 3 weights, expected 2, the number of ids": {"weights": torch.ones(3)},
    "KeyedJagged: 2 keys have strides, expected 1": {"stride": None, "stride_per_key_per_rank": ((1,), (1,))},
}


@st.composite
def features(draw: st.DrawFn, stride: int | None = None) -> KeyedJagged:
    strides = (
        [stride] * draw(st.integers(0, 4)) if stride is not None else draw(st.lists(st.integers(0, 3), max_size=4))
    )
    lengths = [draw(st.integers(0, 3)) for _ in range(sum(strides))]
    values = torch.arange(sum(lengths))
    return KeyedJagged(
        keys=tuple(f"k{index}" for index in range(len(strides))),
        values=values,
        lengths=torch.tensor(lengths, dtype=torch.int32),
        weights=values * 0.5,
        stride=stride,
        stride_per_key_per_rank=None if stride is not None else tuple((one,) for one in strides),
    )


def bags(jagged: KeyedJagged) -> list[tuple[str, list[list[int]]]]:
    """Key by key, bag by bag, by plain counting."""
    offsets, found, bag = jagged.offsets().tolist(), [], 0
    for key, stride in zip(jagged.keys, jagged.stride_per_key, strict=True):
        own = [jagged.values[offsets[one] : offsets[one + 1]].tolist() for one in range(bag, bag + stride)]
        found.append((key, own))
        bag += stride
    return found


@given(features(), st.data())
def test_permute_moves_whole_keys_and_may_repeat_or_drop_them(jagged: KeyedJagged, data: st.DataObject) -> None:
    order = data.draw(st.lists(st.integers(0, len(jagged.keys) - 1), max_size=6)) if jagged.keys else []
    result = jagged.permute(order)
    assert bags(result) == [bags(jagged)[index] for index in order]
    assert result.weights is not None
    assert result.weights.tolist() == [value * 0.5 for value in result.values.tolist()]


@given(features(), st.data())
def test_without_values_permute_gives_the_same_sizes(jagged: KeyedJagged, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(jagged.keys))))
    real, sizes = jagged.permute(order), jagged.to_payload(torch.device("meta")).permute(order)
    assert sizes.values.is_meta
    assert sizes.values.shape == real.values.shape
    assert sizes.lengths.tolist() == real.lengths.tolist()
    assert sizes.length_per_key() == real.length_per_key()


@given(features(), st.data())
def test_split_then_concat_is_the_identity(jagged: KeyedJagged, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(jagged.keys)))
    parts = jagged.split([cut, len(jagged.keys) - cut])
    again = concat(parts)
    assert bags(again) == bags(jagged)
    assert again.stride_per_key == jagged.stride_per_key


@given(features(stride=2))
def test_length_per_key_counts_the_ids_of_every_key(jagged: KeyedJagged) -> None:
    assert jagged.length_per_key() == [sum(map(len, own)) for _, own in bags(jagged)]


@given(features(stride=1), st.data())
def test_select_takes_keys_by_name(jagged: KeyedJagged, data: st.DataObject) -> None:
    keys = data.draw(st.permutations(jagged.keys))
    assert bags(jagged.select(keys)) == [(key, dict(bags(jagged))[key]) for key in keys]


@pytest.mark.parametrize("sentence", ERRORS)
def test_parts_that_do_not_fit_are_one_sentence(sentence: str) -> None:
    good = {"keys": ("a",), "values": torch.ones(2), "lengths": torch.ones(2), "stride": 2}
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        KeyedJagged(**{**good, **ERRORS[sentence]})


def test_wrong_requests_are_one_sentence() -> None:
    one = KeyedJagged(keys=("a",), values=torch.ones(2), lengths=torch.ones(2), stride=2)
    two = KeyedJagged(keys=("b",), values=torch.ones(1), lengths=torch.ones(1), stride=1)
    with pytest.raises(ValueError, match=r"^KeyedJagged: no key 'b'; there are a$"):
        one.select(["b"])
    with pytest.raises(ValueError, match=r"^KeyedJagged: split into \[2\] keys, but there are 1$"):
        one.split([2])
    with pytest.raises(ValueError, match=r"^concat: expected at least one KeyedJagged$"):
        concat([])
    sentence = r"^concat: all parts must have the same stride, and weights in all or in none$"
    with pytest.raises(ValueError, match=sentence):
        concat([one, two])
