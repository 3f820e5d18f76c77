"""What is kept of prices: operators that come again are priced once, however many others come between."""

from __future__ import annotations

import pytest

from scenarios.config.load import load_profile
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.rows import Gather
from sim.engine import prices
from sim.engine.prices import Prices
from sim.operators.laws import seconds

GPU = load_profile("hgx_h200").host.gpu


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> list[Operation]:
    """Collect the operators whose law is computed, and let prices keep 8 of them."""
    found: list[Operation] = []

    def law(operation: Operation, gpu: object) -> float:
        found.append(operation)
        return seconds(operation, GPU)

    monkeypatch.setattr(prices, "seconds", law)
    monkeypatch.setattr(prices, "_MOST_KNOWN", 8)
    return found


def gather(rows: int) -> Gather:
    return Gather(rows=rows, dim=128, dtype="float32")


def test_an_operator_that_comes_again_is_priced_once(priced: list[Operation]) -> None:
    kept = Prices(GPU)
    assert {kept.seconds(gather(64)) for _ in range(3)} == {seconds(gather(64), GPU)}
    assert priced == [gather(64)]


def test_operators_of_drawn_ids_do_not_pile_up(priced: list[Operation]) -> None:
    kept = Prices(GPU)
    for rows in range(1, 1001):
        assert kept.seconds(gather(rows)) == seconds(gather(rows), GPU)
        assert len(kept._known) <= 8
    assert len(priced) == 1000


def test_kernels_of_many_parts_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "_MOST_OF_PARTS", 8)
    kept, part = Prices(GPU), Kernel(kind="elementwise", bytes_read=1024.0)
    costs = set()
    for _ in range(100):
        costs.add(kept.cost(Kernel(kind="elementwise", parts=(part, part))))
        assert len(kept._of_parts) <= 8
    assert len(costs) == 1
