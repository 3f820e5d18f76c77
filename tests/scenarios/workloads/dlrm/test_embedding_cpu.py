"""The compiled embedding rows against the same in torch operations, and their rounding against torch's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scenarios.workloads.dlrm import embedding_cpu as embedding_host
from scenarios.workloads.dlrm import embedding_torch as embedding_device
from scenarios.workloads.dlrm.embedding_layout import Places

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# Of one element: sums of some ten numbers of size 1, rounded once.
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-6, torch.bfloat16: 0.05, torch.float16: 0.01}

UNHURRIED = settings(deadline=None)  # the first example compiles


@dataclass(frozen=True)
class Case:
    """Some pieces with their rows and dims, and bags of ids for each."""

    dtype: torch.dtype
    rows: tuple[int, ...]
    dims: tuple[int, ...]
    bags: tuple[tuple[tuple[int, ...], ...], ...]
    seed: int

    @property
    def samples(self) -> int:
        return len(self.bags[0])

    @property
    def places(self) -> Places:
        return Places.of(list(self.rows), list(self.dims))

    def drawn(self, *shape: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randn(*shape, generator=generator).to(self.dtype)

    def weights(self) -> Tensor:
        return self.drawn(sum(rows * dim for rows, dim in zip(self.rows, self.dims, strict=True)))

    @property
    def named(self) -> tuple[Tensor, Tensor]:
        """Ids and lengths."""
        ids = [one for piece in self.bags for bag in piece for one in bag]
        return torch.tensor(ids, dtype=torch.int64), torch.tensor([len(bag) for piece in self.bags for bag in piece])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pieces, samples = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    rows = tuple(draw(st.integers(1, 6)) for _ in range(pieces))
    bags = tuple(
        tuple(tuple(draw(st.lists(st.integers(0, count - 1), max_size=4))) for _ in range(samples)) for count in rows
    )
    dims = tuple(draw(st.integers(1, 9)) for _ in range(pieces))
    return Case(draw(st.sampled_from(DTYPES)), rows, dims, bags, draw(st.integers(0, 99)))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=CLOSE[found.dtype], atol=CLOSE[found.dtype])


@UNHURRIED
@given(cases())
def test_a_look_up_sums_rows(case: Case) -> None:
    given_ones = (case.weights(), case.places, *case.named, case.samples)
    close(embedding_host.look_up(*given_ones), embedding_device.look_up(*given_ones))


@UNHURRIED
@given(cases(), st.sampled_from([1.0, -0.5]))
def test_gradients_are_added_to_rows(case: Case, scale: float) -> None:
    ours, theirs = case.weights(), case.weights()
    gradient = case.drawn(case.samples, sum(case.dims))
    embedding_host.add(ours, case.places, *case.named, gradient, scale)
    embedding_device.add(theirs, case.places, *case.named, gradient, scale)
    close(ours, theirs)


@UNHURRIED
@given(cases())
def test_adagrad_changes_the_rows_that_were_named_and_their_state(case: Case) -> None:
    first, gradient = case.weights(), case.drawn(case.samples, sum(case.dims))
    ours, theirs = first.clone(), first.clone()
    states = [torch.full((sum(case.rows),), 0.25) for _ in range(2)]
    embedding_host.adagrad(ours, states[0], case.places, *case.named, gradient, 0.1)
    embedding_device.adagrad(theirs, states[1], case.places, *case.named, gradient, 0.1)
    close(ours, theirs)
    close(*states)
    named = [{one for bag in piece for one in bag} for piece in case.bags]
    still = [row not in ids for ids, rows in zip(named, case.rows, strict=True) for row in range(rows)]
    assert (states[0][still] == 0.25).all()
    unmoved = torch.from_numpy(np.repeat(still, np.repeat(case.places.dims, case.places.rows)))
    assert torch.equal(ours[unmoved], first[unmoved])


@UNHURRIED
@given(cases())
def test_adagrad_of_every_row(case: Case) -> None:
    ours, theirs, gradients = case.weights(), case.weights(), case.weights() * 0.5
    states = [torch.full((sum(case.rows),), 0.25) for _ in range(2)]
    embedding_host.adagrad_all(ours, states[0], case.places, gradients, 0.1)
    embedding_device.adagrad_all(theirs, states[1], case.places, gradients, 0.1)
    close(ours, theirs)
    close(*states)


@UNHURRIED
@given(st.lists(st.floats(width=32), min_size=1, max_size=50), st.sampled_from([torch.bfloat16, torch.float16]))
def test_halves_are_rounded_as_torch_does(values: list[float], dtype: torch.dtype) -> None:
    """A row of zeros to which the numbers are added, and stored."""
    given_values = torch.tensor(values, dtype=torch.float32)
    stored = torch.zeros(len(values), dtype=dtype)
    places = Places.of([1], [len(values)])
    embedding_host.add(stored, places, torch.tensor([0]), torch.tensor([1]), given_values.view(1, -1), 1.0)
    torch.testing.assert_close(stored, given_values.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_half_is_kept_as_it_is(dtype: torch.dtype) -> None:
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype)
    places = Places.of([1], [len(every)])
    found = embedding_host.look_up(every, places, torch.tensor([0]), torch.tensor([1]), 1)
    torch.testing.assert_close(found[0], every, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("bad", [3, -1, 1 << 40])
def test_an_id_that_is_no_row_is_named(bad: int) -> None:
    places, ids, lengths = Places.of([9, 3], [2, 2]), torch.tensor([8, 2, bad]), torch.tensor([1, 0, 1, 1])
    flat, gradient = torch.zeros(24), torch.zeros(2, 4)
    calls = (
        lambda: embedding_host.look_up(flat, places, ids, lengths, 2),
        lambda: embedding_host.add(flat, places, ids, lengths, gradient, 1.0),
        lambda: embedding_host.adagrad(flat, torch.zeros(12), places, ids, lengths, gradient, 1.0),
    )
    for call in calls:
        with pytest.raises(IndexError, match=rf"ids\[2\] = {bad}: expected a row of its table"):
            call()
