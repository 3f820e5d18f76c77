"""What docs/kernels.md says of kernels and steps that others have measured: the bars that hold."""

from __future__ import annotations

import pytest

from benchmarks import published_kernels, published_steps
from scenarios.config.load import load_profile
from scenarios.seam.kernel import Kernel
from sim.engine.roofline import cost


def test_kernels_that_set_nothing_are_predicted() -> None:
    rows = published_kernels.summary(published_kernels.compare())
    held = rows[rows["rows"] == published_kernels.HELD_OUT].set_index("kind")
    assert held["count"].to_dict() == {"gemm": 10, "elementwise": 5, "qr": 12}
    for kind, mean, worst in (("gemm", 0.05, 0.06), ("elementwise", 0.06, 0.12), ("qr", 0.10, 0.35)):
        assert held.loc[kind, "mean"] < mean, kind
        assert abs(held.loc[kind, "worst"]) < worst, kind


def test_a_small_kernel_has_a_smaller_share_of_the_gpu() -> None:
    gpu = load_profile("dgx_a100").host.gpu

    def share(side: int) -> float:
        flops = 2.0 * side**3
        price = cost(Kernel(kind="gemm", dtype="float16", flops=flops), gpu)
        return flops / gpu.flops_per_s["float16"] / (price.ramp_ns / 1e9 + price.arithmetic_s)

    shares = [share(side) for side in (256, 1024, 4096, 16384)]
    assert shares == sorted(shares)
    assert shares[0] < 0.02
    assert shares[-1] == pytest.approx(gpu.efficiency["gemm"], rel=0.01)


def test_work_that_takes_as_long_as_the_ramp_reaches_half_of_the_efficiency() -> None:
    gpu = load_profile("dgx_a100").host.gpu
    flops = gpu.ramps_ns["gemm"] / 1e9 * gpu.flops_per_s["float16"] * gpu.efficiency["gemm"]
    price = cost(Kernel(kind="gemm", dtype="float16", flops=flops), gpu)
    assert price.arithmetic_s == pytest.approx(price.ramp_ns / 1e9)


@pytest.mark.slow
def test_steps_that_others_measured() -> None:
    table = published_steps.compare()
    errors = dict(zip(table["measurement"], table["error"], strict=True))
    for gpus in (4, 6):
        assert abs(errors[f"pytorch issue 74148, PowerSGD, {gpus} V100"]) < 0.15
