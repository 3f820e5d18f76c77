"""Cutting and joining keyed jagged features: ids stay with their bags, with values and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.sparse.keyed_jagged import KeyedJagged, chunk_sums, concat

ERRORS: dict[str, dict[str, Any]] = {
    "KeyedJagged: give either stride or stride_per_key_per_rank": {"stride": None},
    "KeyedJagged: 3 lengths, expected 2, the sum of strides": {"lengths": torch.ones(3)},
    "KeyedJagged: 3 weights, expected 2, the number of ids": {"weights": torch.ones(3)},
    "KeyedJagged: 2 keys have 3 ids, expected 1 with the 2 of values": {"ids_per_key": (1, 2)},
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


@given(features())
def test_sizes_alone_hold_no_tensor_and_count_the_same(jagged: KeyedJagged) -> None:
    sizes = jagged.sizes_only()
    assert all(each.is_meta for each in (sizes.values, sizes.lengths))
    assert sizes.length_per_key() == jagged.length_per_key()
    assert sizes.stride_per_key == jagged.stride_per_key


@given(features(), st.data())
def test_counted_ids_are_kept_whatever_becomes_of_keys(jagged: KeyedJagged, data: st.DataObject) -> None:
    """So that nobody waits again for the device that has the lengths."""
    jagged.length_per_key()
    order = data.draw(st.lists(st.integers(0, len(jagged.keys) - 1), min_size=1)) if jagged.keys else []
    for each in (jagged.permute(order), jagged.to_payload(torch.device("meta")), concat([jagged, jagged])):
        assert each.ids_per_key is not None
        assert list(each.ids_per_key) == chunk_sums(each.lengths, each.stride_per_key)


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


def test_offsets_say_the_same_as_lengths() -> None:
    keys, values, weights = ["a", "b"], torch.arange(5), torch.rand(5)
    lengths = torch.tensor([2, 0, 1, 2], dtype=torch.int32)
    one = KeyedJagged.from_lengths_sync(keys, values, lengths, weights)
    other = KeyedJagged.from_offsets_sync(keys, values, torch.tensor([0, 2, 2, 3, 5], dtype=torch.int32), weights)
    assert (one.stride, bags(one)) == (2, [("a", [[0, 1], []]), ("b", [[2], [3, 4]])])
    assert (other.stride, other.lengths.dtype, bags(other)) == (2, torch.int32, bags(one))


def test_keys_may_have_batches_of_their_own() -> None:
    lengths = torch.tensor([1, 0, 2])
    jagged = KeyedJagged.from_lengths_sync(["a", "b"], torch.arange(3), lengths, stride_per_key_per_rank=[[2], [1]])
    assert bags(jagged) == [("a", [[0], []]), ("b", [[1, 2]])]


def test_no_keys_have_no_samples() -> None:
    empty = torch.tensor([], dtype=torch.int64)
    assert KeyedJagged.from_lengths_sync([], empty, empty).stride == 0


BAD_LENGTHS: dict[str, dict[str, Any]] = {
    r"KeyedJagged: key 'a' comes twice": {"keys": ["a", "a"]},
    r"KeyedJagged: 2 lengths, expected a multiple of 3, the number of keys": {"keys": ["a", "b", "c"]},
    r"KeyedJagged: 2 lengths, expected a multiple of 0, the number of keys": {"keys": []},
    r"KeyedJagged: a length is -1, expected at least 0": {"lengths": torch.tensor([-1, 3])},
    r"KeyedJagged: lengths add up to 4, expected 2, the number of ids": {"lengths": torch.tensor([1, 3])},
    r"KeyedJagged: 1 weights, expected 2, the number of ids": {"weights": torch.ones(1)},
}


@pytest.mark.parametrize("sentence", BAD_LENGTHS)
def test_lengths_that_do_not_fit_are_one_sentence(sentence: str) -> None:
    good = {"keys": ["a"], "values": torch.ones(2), "lengths": torch.tensor([2, 0])}
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        KeyedJagged.from_lengths_sync(**{**good, **BAD_LENGTHS[sentence]})


@pytest.mark.parametrize("offsets", [[], [1, 2]])
def test_offsets_start_with_0(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"^KeyedJagged: offsets \[1?\] ..., expected them to start with 0$"):
        KeyedJagged.from_offsets_sync(["a"], torch.ones(2), torch.tensor(offsets, dtype=torch.int64))
