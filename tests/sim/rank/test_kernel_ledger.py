"""Which kernels a rank of a prediction on GPUs runs, by what they are priced, and how often in a step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from scenarios.config.load import load_profile
from scenarios.seam.kernel import Kernel, elementwise, together
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import linear
from scenarios.seam.trace import KernelRow
from sim.engine.machine import Machine
from sim.engine.roofline import KernelCost
from sim.rank.balance import PricedComputation
from sim.rank.kernel_ledger import MOST_ROWS, OTHERS, KernelLedger

CLUSTER = replace(load_profile("hgx_h200"), hosts=1)
MACHINE = Machine(CLUSTER)
PRODUCT = linear(8192, 479, 1024, "float32", element_bytes=4)
GEMM = Kernel(kind="gemm", flops=PRODUCT.flops, operations=(PRODUCT,))
UNKNOWN = Kernel(kind="permute", bytes_read=1e8, bytes_written=1e8)


def ledger(*steps: list[Kernel]) -> KernelLedger:
    """Return a ledger of a rank that runs these kernels in its steps, from 0 on."""
    made = KernelLedger(MACHINE, 0)
    for step, kernels in enumerate(steps):
        add(made, step, *kernels)
    return made


def add(to: KernelLedger, step: int, *kernels: Kernel) -> None:
    for kernel in kernels:
        to.add(step, "work", kernel, PricedComputation(kernel=kernel))


def counts(rows: list[KernelRow]) -> dict[str, float]:
    return {row.operator: row.count for row in rows}


def test_operators_are_counted_by_shapes_and_kind_of_price() -> None:
    rows = ledger([], [GEMM, UNKNOWN], [GEMM, UNKNOWN, GEMM]).rows(is_whole=True)
    assert [(row.operator, row.shapes, row.priced_by) for row in rows] == [
        ("linear", "8192x479 x 1024, float32", "law"),
        ("permute", "200 MB, float32", "roofline"),
    ]
    law_s, roofline = MACHINE.prices.seconds(PRODUCT), MACHINE.prices.cost(UNKNOWN)
    assert rows[0].predicted_us == pytest.approx(1e6 * law_s)
    assert rows[1].predicted_us == pytest.approx(MACHINE.alone_ns(0, roofline) / 1e3)
    assert sum(row.share for row in rows) == pytest.approx(1)
    assert rows[0].share / rows[1].share == pytest.approx(2 * rows[0].predicted_us / rows[1].predicted_us)


def test_the_first_step_counts_only_where_it_is_the_only_one() -> None:
    assert counts(ledger([GEMM, UNKNOWN]).rows(is_whole=True)) == {"linear": 1, "permute": 1}
    assert counts(ledger([UNKNOWN], [GEMM], [GEMM, GEMM]).rows(is_whole=True)) == {"linear": 1.5}


def test_a_step_that_was_interrupted_or_given_up_does_not_count() -> None:
    steps = [[GEMM], [GEMM, UNKNOWN], [GEMM]]
    assert counts(ledger(*steps).rows(is_whole=False)) == {"linear": 1, "permute": 1}
    assert counts(ledger([GEMM]).rows(is_whole=False)) == {"linear": 1}
    found = ledger(*steps)
    found.give_up(2)
    assert counts(found.rows(is_whole=True)) == {"linear": 1, "permute": 1}


def test_a_kernel_made_of_parts_counts_its_parts() -> None:
    inner = together([GEMM, UNKNOWN, GEMM])
    rows = ledger([together([inner, inner])]).rows(is_whole=True)
    assert counts(rows) == {"linear": 4, "permute": 2}
    whole_ns = MACHINE.alone_ns(0, MACHINE.prices.cost(together([inner, inner])))
    assert sum(1e3 * row.predicted_us * row.count for row in rows) == pytest.approx(whole_ns, rel=1e-3)


def test_a_measured_time_is_one_of_its_label() -> None:
    found = ledger([])
    found.add(0, "dense.forward", GEMM, PricedComputation(kernel=GEMM, measured_ns=5_000))
    (row,) = found.rows(is_whole=True)
    assert (row.operator, row.priced_by, row.predicted_us) == ("dense.forward", "measured", 5.0)


def test_a_mean_over_ranks_is_one_row_of_its_price() -> None:
    found = ledger([])
    mean = replace(GEMM, operations=())
    price = KernelCost(launch_ns=0, ramp_ns=2_000, arithmetic_s=3e-6, memory_bytes=0)
    found.add(0, "dense", GEMM, PricedComputation(kernel=mean, price=price))
    (row,) = found.rows(is_whole=True)
    assert (row.operator, row.priced_by, row.predicted_us) == ("gemm", "law", 5.0)


def test_a_data_loader_and_what_has_nothing_to_do_are_no_kernels() -> None:
    waiting = Kernel(kind="data_loader", lasts_ns=1_000_000)
    assert ledger([waiting, Kernel(kind="permute", launches=0)]).rows(is_whole=True) == []


def test_gpus_without_laws_price_by_roofline() -> None:
    host = CLUSTER.host
    machine = Machine(replace(CLUSTER, host=replace(host, gpu=replace(host.gpu, priced_by="efficiency"))))
    found = KernelLedger(machine, 0)
    add(found, 0, GEMM)
    (row,) = found.rows(is_whole=True)
    assert (row.operator, row.shapes, row.priced_by) == ("linear", "8192x479 x 1024, float32", "roofline")


def test_shapes_beyond_a_limit_are_put_together() -> None:
    sizes = range(1, MOST_ROWS + 4)
    kernels = [replace(elementwise(size), operations=(contiguous("add", size, "float32"),)) for size in sizes]
    rows = ledger(kernels).rows(is_whole=True)
    assert len(rows) == MOST_ROWS + 1
    assert [row.count for row in rows if row.shapes == OTHERS] == [3]
    assert all(first.share >= second.share for first, second in pairwise(rows))
