"""The law of drawn ids: block shares against sums over all rows, means against what `draw_bags` draws."""

from __future__ import annotations

import math
import tracemalloc
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scenarios.config.scenario import Ids, Interaction, Model, Scenario, Table
from scenarios.workloads.dlrm.batches import draw_bags, draw_ids
from scenarios.workloads.dlrm.ids.distribution import TableDraws, Zipf, block_shares
from scenarios.workloads.dlrm.ids.shuffle import Shuffle
from tests.lanes import examples
from tests.small import cluster, scenario

Floats = npt.NDArray[np.float64]
EXACT = 1e-12
# Numbers of some thousands that are compared: one in 100,000 runs with other examples would have one beyond.
SIGMAS = 6
ORDERS: st.SearchStrategy[Any] = st.sampled_from(["shuffled", "by_frequency"])
EXPONENTS = st.one_of(st.floats(0.01, 4), st.sampled_from([1.0, 1 + 1e-9, 1.05]))


NAMES = st.text("abc_019", max_size=4)


def table(rows: int, ids: Ids, ids_per_sample: float = 1.0, kind: str = "fixed", *, name: str = "t") -> Table:
    return Table(
        name=name,
        rows=rows,
        dim=1,
        ids_per_sample=ids_per_sample,
        ids_per_sample_kind=kind,  # type: ignore[arg-type]
        ids=ids,
        sharding=("row_wise",),
    )


def training(tables: tuple[Table, ...], hosts: int, gpus: int, batch_size: int) -> Scenario:
    model = Model(dense_features=1, bottom=(1,), interaction=Interaction(kind="cat"), top=(1,), tables=tables)
    return scenario(cluster(hosts, gpus), model=model, batch_size=batch_size)


def every_row(one: Table) -> Floats:
    """Return the probability of each row, one by one."""
    weights = np.arange(1.0, one.rows + 1) ** -one.ids.exponent
    if one.ids.order == "shuffled":
        shuffle = Shuffle.of(one)
        weights = weights[np.argsort((shuffle.offset + np.arange(one.rows) * shuffle.step) % one.rows)]
    return np.asarray(weights / math.fsum(weights))


def by_block(of_rows: Floats, blocks: int) -> Floats:
    size = -(-of_rows.size // blocks)
    return np.array([math.fsum(of_rows[index * size : (index + 1) * size]) for index in range(blocks)])


@st.composite
def random_ids(draw: st.DrawFn) -> Ids:
    if draw(st.booleans()):
        return Ids()
    return Ids(kind="zipf", exponent=draw(EXPONENTS), order=draw(ORDERS))


@given(st.integers(1, 3000), random_ids(), st.integers(1, 300), NAMES)
def test_shares_are_sums_over_the_rows(rows: int, ids: Ids, blocks: int, name: str) -> None:
    one = table(rows, ids, name=name)
    shares = block_shares(one, blocks)
    assert shares.shape == (blocks,)
    assert shares.sum() == pytest.approx(1, abs=EXACT)
    assert shares == pytest.approx(by_block(every_row(one), blocks), abs=EXACT)


@examples(20)
@given(rows=st.integers(1 << 12, 1 << 17), exponent=EXPONENTS, blocks=st.integers(1, 300))
@example(rows=1 << 17, exponent=100.0, blocks=7)
def test_a_tail_by_frequency_is_summed_exactly(rows: int, exponent: float, blocks: int) -> None:
    one = table(rows, Ids(kind="zipf", exponent=exponent, order="by_frequency"))
    wanted = by_block(every_row(one), blocks)
    for head in (1 << 12, 1 << 16):
        shares = Zipf(rows, exponent, shuffle=None, head=min(head, rows)).shares(blocks)
        assert shares == pytest.approx(wanted, abs=EXACT)


@examples(12)
@given(rows=st.integers(1 << 18, 1 << 20), exponent=EXPONENTS, blocks=st.integers(2, 600), name=NAMES)
@example(rows=1 << 18, exponent=100.0, blocks=7, name="t")
def test_blocks_of_large_shuffled_tables_are_nearly_sums(rows: int, exponent: float, blocks: int, name: str) -> None:
    one = table(rows, Ids(kind="zipf", exponent=exponent), name=name)
    off = np.abs(block_shares(one, blocks) - by_block(every_row(one), blocks)).max()
    assert off < 0.15 / blocks  # the largest of 400 draws was 0.075


@pytest.mark.parametrize(
    "ids", [Ids(), *(Ids(kind="zipf", exponent=1.0, order=each) for each in ("shuffled", "by_frequency"))]
)
def test_a_billion_rows_need_no_memory_of_their_size(ids: Ids) -> None:
    tracemalloc.start()
    try:
        shares = block_shares(table(10**9, ids), 131_072)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert shares.sum() == pytest.approx(1, abs=EXACT)
    assert block_shares(table(10**9, ids), 131_072) is shares
    assert not shares.flags.writeable


def test_the_harmonic_numbers_of_a_billion_are_met() -> None:
    """H(n) = ln n + 0.5772... + 1 / 2n - 1 / 12n^2 (Euler)."""

    def harmonic(n: float) -> float:
        return math.log(n) + 0.57721566490153286 + 1 / (2 * n) - 1 / (12 * n * n)

    shares = block_shares(table(10**9, Ids(kind="zipf", exponent=1.0, order="by_frequency")), 1000)
    wanted = np.diff([0, *(harmonic(10**6 * index) for index in range(1, 1001))]) / harmonic(10**9)
    assert shares == pytest.approx(wanted, abs=EXACT)


def chi_square_sigmas(found: NDArray[Any], expected: Floats) -> float:
    """Return how far Pearson's statistic is up, as a normal variate: Wilson and Hilferty, PNAS 17(12), 1931.

    Parts of fewer than 20 expected ids are put together.
    """
    few = expected < 20
    found, expected = (np.append(each[~few], each[few].sum()) for each in (found, expected))
    held = expected > 0
    assert found[~held].sum() == 0
    freedom = held.sum() - 1
    if freedom == 0:
        return 0.0
    statistic = ((found[held] - expected[held]) ** 2 / expected[held]).sum()
    return float(((statistic / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(2 / (9 * freedom)))


@examples(40, derandomize=True)
@given(st.one_of(st.integers(1, 3000), st.integers(10**5, 10**9)), random_ids(), st.integers(1, 100), NAMES)
def test_drawn_ids_fall_into_blocks_as_shares_say(rows: int, ids: Ids, blocks: int, name: str) -> None:
    number, one = 100_000, table(rows, ids, name=name)
    drawn = draw_ids(np.random.default_rng([rows, blocks]), one, number)
    found = np.bincount(drawn // -(-rows // blocks), minlength=blocks)
    assert chi_square_sigmas(found, number * block_shares(one, blocks)) < SIGMAS


@examples(20, derandomize=True)
@given(st.data())
def test_means_are_those_of_drawn_batches(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["fixed", "poisson"]))
    lengths = st.integers(1, 3) if kind == "fixed" else st.floats(0.5, 3)
    one = table(data.draw(st.integers(1, 50)), data.draw(random_ids()), data.draw(lengths), kind)
    assert_drawn_from(one, data.draw(st.integers(1, 12)))


@examples(12, derandomize=True)
@given(st.data())
def test_means_of_bags_by_first_id_are_those_of_drawn_ones(data: st.DataObject) -> None:
    ids = Ids(kind="zipf", exponent=data.draw(EXPONENTS), order=data.draw(ORDERS), bags="by_first")
    one = table(data.draw(st.integers(1, 50)), ids, data.draw(st.integers(1, 4)))
    assert_drawn_from(one, data.draw(st.integers(1, 12)))


def test_bags_of_one_first_id_are_alike() -> None:
    one = table(1000, Ids(kind="zipf", exponent=1.2, bags="by_first"), 5)
    made = training((one,), 1, 1, 400)
    bags = np.concatenate([draw_bags(made, 0, 0, step).ids for step in range(3)]).reshape(-1, 5)
    by_first = {first: bags[bags[:, 0] == first] for first in bags[:, 0]}
    assert max(map(len, by_first.values())) > 10
    assert all((same == same[0]).all() for same in by_first.values())
    assert len(np.unique(bags[:, 1:])) > 100


def counts(drawn: Scenario, steps: int, blocks: int) -> Floats:
    """Ids that each rank draws of the first table in each block of it, [steps, ranks, blocks]."""
    size = -(-drawn.workload.tables[0].rows // blocks)
    return np.array(
        [
            [
                np.bincount(draw_bags(drawn, 0, rank, step).ids // size, minlength=blocks)
                for rank in range(drawn.cluster.world_size)
            ]
            for step in range(steps)
        ],
        dtype=np.float64,
    )


def assert_drawn_from(one: Table, blocks: int) -> None:
    """Check that batches of a table's ids have the mean of its law in each block."""
    steps = 1500
    mean = TableDraws(one, samples=16).mean(blocks)
    found = counts(training((one,), 1, 1, 16), steps, blocks)[:, 0]
    # Too few ids say nothing of their own variance: a bag has at most its length of them.
    variance = np.where(steps * mean > 100, found.var(0), mean * one.ids_per_sample)
    assert (np.abs(found.mean(0) - mean) <= SIGMAS * np.sqrt(variance / steps) + 1e-6).all()


@given(st.integers(1, 2000), random_ids(), st.integers(1, 30), st.integers(1, 10))
def test_fixed_lengths_add_up_exactly(rows: int, ids: Ids, blocks: int, length: int) -> None:
    draws = TableDraws(table(rows, ids, length), samples=7)
    assert draws.mean(blocks).sum() == pytest.approx(7 * length, rel=EXACT)
    assert draws.mean().tolist() == [7 * length]


def test_poisson_lengths_are_spread_over_the_blocks() -> None:
    assert TableDraws(table(4, Ids(), 2.5, "poisson"), samples=8).mean(2).tolist() == [10, 10]


FILES = count()


@given(data=st.data())
def test_means_of_a_file_are_those_of_reading_it_to_its_end(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Over all ranks and steps until the file is read from its start again, exactly."""
    bags = data.draw(st.lists(st.lists(st.integers(0, 11), max_size=4), min_size=1, max_size=12).filter(any))
    ids = Ids(kind="file", path=write_bags(tmp_path_factory.getbasetemp(), bags))
    ranks, blocks, batch_size = (
        data.draw(st.integers(1, 4)),
        data.draw(st.integers(1, 21)),
        data.draw(st.integers(1, 9)),
    )
    one = table(12, ids)
    found = counts(training((one,), 1, ranks, batch_size), len(bags), blocks)
    assert TableDraws(one, batch_size).mean(blocks) == pytest.approx(found.mean((0, 1)))
    assert block_shares(one, blocks) == pytest.approx(by_block(row_counts(bags) / row_counts(bags).sum(), blocks))


def row_counts(bags: list[list[int]]) -> npt.NDArray[np.int64]:
    return np.bincount([row for bag in bags for row in bag], minlength=12)


def write_bags(folder: Path, bags: list[list[int]]) -> Path:
    """Return a file that nobody has read before."""
    path = folder / f"bags{next(FILES)}.csv"
    path.write_text("".join(" ".join(map(str, bag)) + "\n" for bag in bags))
    return path
