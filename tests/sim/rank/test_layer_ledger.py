"""How computations are divided among the modules that run their operators."""

from __future__ import annotations

import pytest

from scenarios.seam.kernel import together
from sim.rank.layer_ledger import LayerLedger
from tests.sim.rank.test_kernel_ledger import GEMM, MACHINE, UNKNOWN


def test_shares_are_those_of_the_operators_prices_whatever_else_is_equal() -> None:
    ledger, mixed = LayerLedger(MACHINE, 0), together([GEMM, UNKNOWN, GEMM, GEMM], ["a", "b", "b", "a"])
    for label, kernel, times in (("forward", mixed, 2), ("backward", together([GEMM], ["a"]), 1), ("other", GEMM, 1)):
        for _ in range(times):
            ledger.add(label, kernel)
    rows = {(row.label, row.layer, row.operator): row.share for row in ledger.rows()}
    one, unknown = (MACHINE.alone_ns(0, MACHINE.prices.cost(each)) for each in (GEMM, UNKNOWN))
    whole = 3 * one + unknown
    assert rows == {
        ("forward", "a", "linear"): pytest.approx(2 * one / whole, rel=1e-3),
        ("forward", "b", "permute"): pytest.approx(unknown / whole, rel=1e-3),
        ("forward", "b", "linear"): pytest.approx(one / whole, rel=1e-3),
        ("backward", "a", "linear"): 1,
    }
    assert sum(row.share for row in ledger.rows()) == pytest.approx(2), "rows are counted on"
