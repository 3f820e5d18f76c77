"""Which operators the ranks of a prediction on GPUs run, and how often."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.seam.kernel import Kernel, elementwise, together
from scenarios.seam.operations.as_json import operations_of
from scenarios.seam.operations.bags import Bags, BagsForward
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import contiguous
from scenarios.seam.operations.products import linear
from sim.rank import operator_ledger
from sim.rank.operator_ledger import OperatorLedger

PRODUCT = linear(8192, 479, 1024, "float32", element_bytes=4)
ADD = contiguous("add", 1000, "float32")
GEMM = Kernel(kind="gemm", flops=PRODUCT.flops, operations=(PRODUCT,))


def bags(ids: int) -> BagsForward:
    return BagsForward(bags=Bags(tables=2, bags=64, ids=ids, dim=8, rows=1000, unique=ids // 2))


def count(*kernels: Kernel) -> dict[Operation, int]:
    """Return the operators of a ledger that was shown these kernels, each with its calls."""
    ledger = OperatorLedger()
    for kernel in kernels:
        ledger.add(kernel)
    return {operation: row.calls for row in ledger.rows() for operation in operations_of(row.operations)}


def test_operators_of_kernels_and_of_their_parts_are_counted() -> None:
    both = replace(elementwise(1000), operations=(ADD, PRODUCT))
    whole = together([GEMM, both, GEMM, Kernel(kind="permute", bytes_read=1e6)])
    assert count(GEMM, whole, whole) == {PRODUCT: 7, ADD: 2}


@pytest.mark.parametrize("most", [1, 4096])
def test_equal_kernels_count_alike_however_many_are_kept(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_ledger, "_MOST_KEPT", most)
    assert count(GEMM, replace(GEMM, kind="x"), replace(GEMM, kind="y"), GEMM) == {PRODUCT: 4}


def test_operators_whose_drawn_ids_differ_a_little_are_one() -> None:
    kernels = [Kernel(kind="embedding_lookup", operations=(bags(ids),)) for ids in (2001, 2002, 2003, 4000)]
    assert count(*kernels) == {bags(2001): 3, bags(4000): 1}


def test_distinct_operators_beyond_a_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_ledger, "MOST_ROWS", 2)
    adds = [Kernel(kind="elementwise", operations=(contiguous("add", size, "float32"),)) for size in (1, 2, 3)]
    assert list(count(*adds, *adds).values()) == [2, 2]
