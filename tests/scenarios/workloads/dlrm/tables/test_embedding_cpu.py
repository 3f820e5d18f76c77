"""The compiled embedding rows against the same in torch operations, and their rounding against torch's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from scenarios.config.scenario import Bag
from scenarios.workloads.dlrm.tables import embedding_cpu, embedding_torch
from scenarios.workloads.dlrm.tables.embedding_torch import Named, Places, RankRows

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# Of one element: sums of some ten numbers of size 1, rounded once.
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-6, torch.bfloat16: 0.05, torch.float16: 0.01}


@dataclass(frozen=True)
class Case:
    """Some pieces with their rows and dims, and bags of ids for each; some are weighted, some not pooled.

    What is looked up, and its gradient, has a dtype of its own, and Adagrad a state for each row or element.
    """

    dtype: torch.dtype
    rows: tuple[int, ...]
    dims: tuple[int, ...]
    bags: tuple[tuple[tuple[int, ...], ...], ...]
    seed: int
    bag: Bag
    travels_as: torch.dtype
    by_element: bool
    keys: tuple[int, ...]

    @property
    def key_dims(self) -> list[int]:
        return [dim for dim, keys in zip(self.dims, self.keys, strict=True) for _ in range(keys)]

    @property
    def samples(self) -> int:
        return len(self.bags[0])

    @property
    def places(self) -> Places:
        return Places.of(list(self.rows), list(self.dims), list(self.keys))

    def draw(self, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(*shape, generator=generator).to(self.dtype)

    def weights(self) -> Tensor:
        return self.draw(sum(rows * dim for rows, dim in zip(self.rows, self.dims, strict=True)))

    @property
    def name(self) -> Named:
        ids = [one for key in self.bags for bag in key for one in bag]
        lengths = torch.tensor([len(bag) for key in self.bags for bag in key])
        weights = torch.rand(len(ids), generator=torch.Generator().manual_seed(self.seed))
        return Named(
            torch.tensor(ids, dtype=torch.int64),
            lengths,
            weights if self.bag == "weighted" else None,
            unpooled=self.bag == "sequence",
        )

    def gradient(self) -> Tensor:
        """As what is looked up."""
        if self.bag != "sequence":
            return self.draw(self.samples, sum(self.key_dims)).to(self.travels_as)
        sizes = [sum(map(len, key)) * dim for key, dim in zip(self.bags, self.key_dims, strict=True)]
        return self.draw(sum(sizes)).to(self.travels_as)

    def storage(self) -> RankRows:
        """Weights, and a state of 1/4 for each row or element."""
        weights = self.weights()
        states = weights.numel() if self.by_element else sum(self.rows)
        return RankRows(weights, self.places, torch.full((states,), 0.25), self.by_element)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pieces, samples = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rows = tuple(draw(st.integers(1, 6)) for _ in range(pieces))
    keys = tuple(draw(st.integers(1, 3)) for _ in range(pieces))
    bags = tuple(
        tuple(tuple(draw(st.lists(st.integers(0, count - 1), max_size=4))) for _ in range(samples))
        for count, times in zip(rows, keys, strict=True)
        for _ in range(times)
    )
    dims = tuple(draw(st.integers(1, 9)) for _ in range(pieces))
    bag = draw(st.sampled_from(get_args(Bag)))
    dtype = draw(st.sampled_from(DTYPES))
    travels_as = dtype if dtype == torch.float64 else draw(st.sampled_from(DTYPES))
    return Case(dtype, rows, dims, bags, draw(st.integers(0, 99)), bag, travels_as, draw(st.booleans()), keys)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=CLOSE[found.dtype], atol=CLOSE[found.dtype])


@given(cases())
def test_a_look_up_sums_rows(case: Case) -> None:
    rows = case.storage()
    found = embedding_cpu.look_up(rows, case.name, case.samples, case.travels_as)
    close(found, embedding_torch.look_up(rows, case.name, case.samples, case.travels_as))


@given(cases(), st.sampled_from([1.0, -0.5]))
def test_gradients_are_added_to_rows(case: Case, scale: float) -> None:
    ours, theirs = case.storage(), case.storage()
    gradient = case.gradient()
    embedding_cpu.add(ours, case.name, gradient, scale)
    embedding_torch.add(theirs, case.name, gradient, scale)
    close(ours.weights, theirs.weights)


@given(cases(), st.sampled_from([torch.float32, torch.float64]))
def test_gradients_of_all_rows_are_summed(case: Case, dtype: torch.dtype) -> None:
    gradient = case.gradient()
    ours, theirs = (each.sums(case.places, case.name, gradient, dtype) for each in (embedding_cpu, embedding_torch))
    close(ours, theirs)


@given(cases())
def test_adagrad_changes_the_rows_that_were_named_and_their_state(case: Case) -> None:
    first, gradient = case.weights(), case.gradient()
    ours, theirs = case.storage(), case.storage()
    embedding_cpu.adagrad(ours, case.name, gradient, 0.1)
    embedding_torch.adagrad(theirs, case.name, gradient, 0.1)
    close(ours.weights, theirs.weights)
    close(ours.squares, theirs.squares)
    named: list[set[int]] = [set() for _ in case.rows]
    for piece, bags in zip(case.places.pieces.tolist(), case.bags, strict=True):
        named[piece] |= {one for bag in bags for one in bag}
    still = [row not in ids for ids, rows in zip(named, case.rows, strict=True) for row in range(rows)]
    unmoved = torch.from_numpy(np.repeat(still, np.repeat(case.places.dims, case.places.rows)))
    assert (ours.squares[unmoved if case.by_element else still] == 0.25).all()
    assert torch.equal(ours.weights[unmoved], first[unmoved])


@given(cases())
def test_adagrad_of_every_row(case: Case) -> None:
    ours, theirs, gradients = case.storage(), case.storage(), case.weights() * 0.5
    embedding_cpu.adagrad_all(ours, gradients, 0.1)
    embedding_torch.adagrad_all(theirs, gradients, 0.1)
    close(ours.weights, theirs.weights)
    close(ours.squares, theirs.squares)


@given(st.lists(st.floats(width=32), min_size=1, max_size=50), st.sampled_from([torch.bfloat16, torch.float16]))
def test_halves_are_rounded_as_torch_does(values: list[float], dtype: torch.dtype) -> None:
    """A row of zeros to which the numbers are added, and stored."""
    given_values = torch.tensor(values, dtype=torch.float32)
    stored = torch.zeros(len(values), dtype=dtype)
    rows = RankRows(stored, Places.of([1], [len(values)]), torch.zeros(0))
    embedding_cpu.add(rows, Named(torch.tensor([0]), torch.tensor([1])), given_values.view(1, -1), 1.0)
    torch.testing.assert_close(stored, given_values.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_is_kept_as_it_is(dtype: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype)
    rows = RankRows(every, Places.of([1], [len(every)]), torch.zeros(0))
    found = embedding_cpu.look_up(rows, Named(torch.tensor([0]), torch.tensor([1])), 1, every.dtype)
    torch.testing.assert_close(found[0], every, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bad", [3, -1, 1 << 40])
def test_an_id_that_is_no_row_is_named(bad: int) -> None:
    rows = RankRows(torch.zeros(24), Places.of([9, 3], [2, 2]), torch.zeros(12))
    named, gradient = Named(torch.tensor([8, 2, bad]), torch.tensor([1, 0, 1, 1])), torch.zeros(2, 4)
    calls = (
        lambda: embedding_cpu.look_up(rows, named, 2, torch.float32),
        lambda: embedding_cpu.add(rows, named, gradient, 1.0),
        lambda: embedding_cpu.adagrad(rows, named, gradient, 1.0),
    )
    for call in calls:
        with pytest.raises(IndexError, match=rf"ids\[2\] = {bad}: expected a row of its table"):
            call()
