"""What a kernel costs on an idle GPU: launches of its kind, and the slower of arithmetic and memory."""

from __future__ import annotations

import dataclasses

import pytest

from scenarios.seam.kernel import Kernel
from sim.engine.roofline import cost
from tests.small import CORE

GPU = dataclasses.replace(
    CORE, launch_ns=5000, launches_ns={"gemm": 9000, "qr": 0}, efficiency={"gemm": 0.5, "default": 0.25}
)


@pytest.mark.parametrize(("kind", "launch_ns"), [("gemm", 9000), ("qr", 0), ("permute", 5000)])
def test_each_launch_costs_what_it_does_for_its_kind(kind: str, launch_ns: int) -> None:
    assert cost(Kernel(kind=kind, launches=3), GPU).launch_ns == 3 * launch_ns


def test_arithmetic_and_memory_take_longer_by_the_efficiency_of_the_kind() -> None:
    product = cost(Kernel(kind="gemm", flops=5e9, bytes_read=3e6, bytes_written=1e6), GPU)
    assert (product.arithmetic_s, product.memory_bytes) == (pytest.approx(0.2), pytest.approx(8e6))
    assert cost(Kernel(kind="permute", bytes_read=1e6), GPU).memory_bytes == pytest.approx(4e6)
