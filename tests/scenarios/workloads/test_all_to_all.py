from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.scenario import CollectiveCalls, Exchange, Scenario
from scenarios.workloads.collective.program import CollectiveProgram
from scenarios.workloads.collective.splits import _LINE, _LINE_CYCLE, Splits, checksum, draw_values
from tests.lockstep import Lockstep, play
from tests.scenarios.compression.helpers import GPU_BYTES, a_scenario, list_issued

EVEN = Exchange(size_bytes=4 * 1000)
RANDOM = Exchange(size_bytes=4 * 1000, splits="random", skew=0.7)


def scenario(exchange: Exchange, ranks: int = 4) -> Scenario:
    return a_scenario(ranks, program="all_to_all", exchange=exchange, steps=3)


def play_calls(given: Scenario, device: str = "cpu") -> Lockstep:
    return play(CollectiveProgram(given), given.cluster.world_size, device=device)[1]


def slow_checksum(values: list[int]) -> int:
    """The same, element by element, in Python's integers."""
    whole = len(values) // _LINE * _LINE
    by_place = sum(value * (place % _LINE + 1) for place, value in enumerate(values[:whole]))
    by_line = sum(value * (place // _LINE % _LINE_CYCLE + 1) for place, value in enumerate(values[:whole]))
    return by_place + by_line + sum(value * (place + 1) for place, value in enumerate(values[whole:]))


@given(
    st.integers(0, 3000), st.integers(1, 9), st.sampled_from(["even", "random"]), st.floats(0, 3), st.integers(0, 50)
)
def test_sent_and_expected_elements_agree_for_every_pair(
    elements: int, size: int, splits: str, skew: float, step: int
) -> None:
    exchange = Exchange(size_bytes=4 * elements + 3, splits=splits, skew=skew)  # type: ignore[arg-type]
    # Every rank makes its own: none may need another's.
    sides = [Splits(exchange, size, seed=3).of_rank(step, rank) for rank in range(size)]
    received = Splits(exchange, size, seed=3).received_elements(step).tolist()
    for rank, (sends, receives) in enumerate(sides):
        assert sum(sends) == elements
        assert min(sends) >= 0
        assert receives == [sides[peer][0][rank] for peer in range(size)]
        assert received[rank] == sum(receives)


def test_buffers_hold_what_any_step_receives() -> None:
    steps = 300
    splits = Splits(RANDOM, 8, seed=3)
    largest = [max(int(splits.received_elements(step)[rank]) for step in range(steps)) for rank in range(8)]
    assert splits.most_received(steps).tolist() == largest
    assert splits.most_received(1).tolist() == splits.received_elements(0).tolist()


def test_even_splits_differ_by_one_element_at_most() -> None:
    sends, receives = Splits(Exchange(size_bytes=4 * 10), 4, seed=0).of_rank(0, 2)
    assert sends == [3, 3, 2, 2]
    assert receives == [2, 2, 2, 2]


def test_random_splits_are_new_each_step_and_uneven() -> None:
    splits = Splits(Exchange(size_bytes=4000, splits="random"), 8, seed=1)
    drawn = [splits.of_rank(step, 0)[0] for step in range(4)]
    assert len({tuple(sends) for sends in drawn}) == 4
    assert all(max(sends) > 2 * min(sends) for sends in drawn)
    assert splits.of_rank(0, 0)[0] == drawn[0]
    assert Splits(Exchange(size_bytes=4000, splits="random"), 8, seed=2).of_rank(0, 0)[0] != drawn[0]


@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
def test_skew_is_the_exponent_of_the_peers_shares(skew: float) -> None:
    size, elements = 32, 1_000_000
    splits = Splits(Exchange(size_bytes=4 * elements, splits="random", skew=skew), size, seed=0)
    mean = sum(torch.from_numpy(splits.received_elements(step)).double() for step in range(200)) / (
        200 * size * elements
    )
    weights = torch.arange(1, size + 1).double() ** -skew
    torch.testing.assert_close(mean, weights / weights.sum(), rtol=0.25, atol=1e-3)


@pytest.mark.parametrize("exchange", [EVEN, RANDOM], ids=lambda exchange: exchange.splits)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int64", "complex64"])
def test_the_checksum_is_that_of_what_should_arrive(exchange: Exchange, dtype: Any) -> None:
    given = scenario(Exchange(size_bytes=4000, splits=exchange.splits, skew=exchange.skew, dtype=dtype))
    splits, kind = Splits(CollectiveCalls.of(given.workload), 4, given.run.seed), getattr(torch, dtype)
    values = [
        draw_values(given.run.seed, rank, splits.elements, dtype=kind, device=torch.device("cpu")) for rank in range(4)
    ]
    found = {(rank, step): value for rank, step, name, value in play_calls(given).records if name == "checksum"}
    assert len(found) == 4 * 3
    for (rank, step), value in found.items():
        arriving: list[int] = []
        for source in range(4):
            sends = splits.of_rank(step, source)[0]
            start = step * 37 % 127 + sum(sends[:rank])
            piece = values[source][start : start + sends[rank]]
            arriving += (piece.real if kind.is_complex else piece).long().tolist()
        assert value == slow_checksum(arriving)


def test_the_checksum_notices_any_two_chunks_in_the_wrong_order() -> None:
    chunks = list(torch.randint(127, (4, 61 * 5), generator=torch.Generator().manual_seed(0)).float())
    right = checksum(torch.cat(chunks))
    for one in range(4):
        for other in range(one):
            wrong = list(chunks)
            wrong[one], wrong[other] = wrong[other], wrong[one]
            assert checksum(torch.cat(wrong)) != right


def test_values_differ_between_ranks_and_between_steps() -> None:
    checksums = [value for rank, step, _, value in play_calls(scenario(EVEN)).records]
    assert len(set(checksums)) == len(checksums)


@pytest.mark.parametrize("exchange", [EVEN, RANDOM], ids=lambda exchange: exchange.splits)
def test_a_meta_run_issues_the_same_as_one_with_values(exchange: Exchange) -> None:
    values, sizes = play_calls(scenario(exchange)), play_calls(scenario(exchange), device="meta")
    for rank in range(4):
        assert list_issued(sizes, rank) == list_issued(values, rank)
    assert [call.send_bytes for call in sizes.calls] == [call.send_bytes for call in values.calls]
    assert {call.bytes_in for call in values.calls} == {4000}
    assert not sizes.records


@pytest.mark.parametrize("exchange", [EVEN, RANDOM], ids=lambda exchange: exchange.splits)
def test_memory_holds_the_largest_step(exchange: Exchange) -> None:
    given = scenario(exchange)
    rows = CollectiveProgram(given).memory
    calls = play_calls(given).calls
    for rank in range(4):
        most = max(call.bytes_out for call in calls if call.rank == rank)
        parts = {row.part: row.size_bytes for row in rows if row.rank == rank}
        assert parts == {"send buffer": 4 * (1000 + 127), "receive buffer": most}
    assert {row.capacity_bytes for row in rows} == {GPU_BYTES}
