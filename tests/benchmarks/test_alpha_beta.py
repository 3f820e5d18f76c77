"""The closed forms of Thakur, Rabenseifner and Gropp 2005, by hand."""

from __future__ import annotations

import pytest

from benchmarks.baselines.alpha_beta import AlphaBeta, fit, fit_ends, predict

MODEL = AlphaBeta(alpha_s=1e-4, beta_s_per_byte=4e-8)
ALPHA, BETA = MODEL.alpha_s, MODEL.beta_s_per_byte
SIZE = 1_200_000


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_ring_passes_shares_of_the_buffer(ranks: int) -> None:
    once = (ranks - 1) * (ALPHA + SIZE / ranks * BETA)
    assert predict(MODEL, "all_gather", SIZE, ranks) == pytest.approx(once)
    assert predict(MODEL, "all_reduce", SIZE, ranks) == pytest.approx(2 * once)
    assert predict(MODEL, "reduce_scatter", SIZE, ranks) == pytest.approx(2 * once)


@pytest.mark.parametrize(("ranks", "rounds"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4)])
def test_trees_have_as_many_rounds_as_the_ranks_have_bits(ranks: int, rounds: int) -> None:
    assert predict(MODEL, "broadcast", SIZE, ranks) == pytest.approx(rounds * (ALPHA + SIZE * BETA))
    assert predict(MODEL, "barrier", 0, ranks) == pytest.approx(rounds * ALPHA)


def test_an_even_all_to_all_sends_all_but_a_rank_s_own_share() -> None:
    assert predict(MODEL, "all_to_all", SIZE, 4) == pytest.approx(3 * ALPHA + 3 / 4 * SIZE * BETA)
    assert predict(MODEL, "all_to_all", SIZE, 4, overlapped=True) == pytest.approx(ALPHA + 3 / 4 * SIZE * BETA)


def test_of_an_uneven_all_to_all_the_busiest_direction_counts() -> None:
    to_the_last = [[0, 0, 700], [0, 900, 500], [100, 0, 10_000]]  # rank 2 hears 1200, nobody says more than 700
    assert predict(MODEL, "all_to_all", 10_100, 3, 1, to_the_last) == pytest.approx(2 * ALPHA + 1200 * BETA)
    from_the_first = [list(row) for row in zip(*to_the_last, strict=True)]
    assert predict(MODEL, "all_to_all", 10_100, 3, 1, from_the_first) == pytest.approx(2 * ALPHA + 1200 * BETA)


def test_ranks_of_a_host_share_its_interface_and_cross_none_among_themselves() -> None:
    # 2 hosts of 2: each rank sends a quarter to either rank of the other host, both by the same interface.
    assert predict(MODEL, "all_to_all", SIZE, 4, 2) == pytest.approx(3 * ALPHA + SIZE * BETA)
    # A ring leaves each host once.
    ring = 3 * (ALPHA + SIZE / 4 * BETA)
    assert predict(MODEL, "all_gather", SIZE, 4, 2) == pytest.approx(ring)
    # 0 to 1 inside; then 0 to 2 and 1 to 3 together.
    assert predict(MODEL, "broadcast", SIZE, 4, 2) == pytest.approx(ALPHA + (ALPHA + 2 * SIZE * BETA))
    # Those of a single host have an interface each.
    assert predict(MODEL, "all_to_all", SIZE, 4, 4) == pytest.approx(predict(MODEL, "all_to_all", SIZE, 4, 1))


def test_no_other_parameters_leave_smaller_relative_errors() -> None:
    messages = [(4096, 3.1e-4), (65536, 2.5e-3), (1 << 20, 4.6e-2), (1 << 22, 0.17)]

    def leave(model: AlphaBeta) -> float:
        return sum((model.message_s(size) / seconds - 1) ** 2 for size, seconds in messages)

    found = fit(messages)
    for alpha, beta in ((1.01, 1), (0.99, 1), (1, 1.001), (1, 0.999), (1.01, 0.999)):
        aside = AlphaBeta(alpha_s=found.alpha_s * alpha, beta_s_per_byte=found.beta_s_per_byte * beta)
        assert leave(aside) > leave(found)


def test_no_parameter_is_negative() -> None:
    steep, flat = fit([(1000, 1e-5), (2000, 3e-5)]), fit([(1000, 2e-5), (2000, 1e-5)])
    assert (steep.alpha_s, steep.beta_s_per_byte) == pytest.approx((0.0, 15 / 13 * 1e-8))
    assert (flat.alpha_s, flat.beta_s_per_byte) == pytest.approx((1.2e-5, 0.0))


def test_the_ends_are_the_smallest_message_and_the_slope_of_the_largest() -> None:
    found = fit_ends([(1 << 20, 0.05), (1000, 5e-4), (100_000, 0.006), (200_000, 0.01)])
    beta = 0.04 / ((1 << 20) - 200_000)
    assert (found.alpha_s, found.beta_s_per_byte) == pytest.approx((5e-4 - 1000 * beta, beta))


@pytest.mark.parametrize("messages", [[], [(8, 1.0)], [(8, 1.0), (8, 2.0)], [(8, 1.0), (16, 0.0)]])
def test_fit_refuses_a_single_size_and_times_of_zero(messages: list[tuple[float, float]]) -> None:
    for fitted in (fit, fit_ends):
        with pytest.raises(ValueError, match="two sizes or more, in times above zero"):
            fitted(messages)
