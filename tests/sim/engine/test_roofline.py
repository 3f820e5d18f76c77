"""What a kernel costs on an idle GPU: launches of its kind, and the slower of arithmetic and memory."""

from __future__ import annotations

import dataclasses

import pytest

from scenarios.config.load import load_profile
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel, attention, gemm, together
from sim.engine.roofline import alone_ns, cost
from tests.small import CORE

GPU = dataclasses.replace(
    CORE, launch_ns=5000, launches_ns={"gemm": 9000, "qr": 0}, efficiency={"gemm": 0.5, "default": 0.25}
)


@pytest.mark.parametrize(("kind", "launch_ns"), [("gemm", 9000), ("qr", 0), ("permute", 5000)])
def test_launch_cost_is_that_of_the_kernels_kind(kind: str, launch_ns: int) -> None:
    assert cost(Kernel(kind=kind, launches=3), GPU).launch_ns == 3 * launch_ns


def test_arithmetic_and_memory_take_longer_by_the_efficiency_of_the_kind() -> None:
    product = cost(Kernel(kind="gemm", flops=5e9, bytes_read=3e6, bytes_written=1e6), GPU)
    assert (product.arithmetic_s, product.memory_bytes) == (pytest.approx(0.2), pytest.approx(8e6))
    assert cost(Kernel(kind="permute", bytes_read=1e6), GPU).memory_bytes == pytest.approx(4e6)


def test_parts_take_as_long_as_one_after_the_other() -> None:
    """One is bound by arithmetic, the other by memory: neither hides the other."""
    product = Kernel(kind="gemm", flops=5e9, bytes_read=1e6)
    copy = Kernel(kind="permute", bytes_read=1e8, launches=3)
    both, first, second = (cost(each, GPU) for each in (together([product, copy, copy]), product, copy.times(2)))
    seconds = [max(each.arithmetic_s, each.memory_bytes / GPU.memory_bytes_per_s) for each in (both, first, second)]
    assert seconds[0] == pytest.approx(seconds[1] + seconds[2])
    assert (both.launch_ns, both.ramp_ns) == (9000 + 6 * 5000, first.ramp_ns + second.ramp_ns)


def test_parts_within_parts_take_as_long_as_side_by_side() -> None:
    """The sums of a composite hide the kinds of its parts, and that one waits for memory, another for arithmetic."""
    product = Kernel(kind="gemm", flops=5e9, bytes_read=1e6)
    copy = Kernel(kind="permute", bytes_read=1e8, launches=3)
    nested = together([together([product, copy]), together([product, copy]), copy])
    deep, flat = (cost(each, GPU) for each in (nested, together([product, copy, product, copy, copy])))
    assert alone_ns(deep, GPU) == pytest.approx(alone_ns(flat, GPU))
    assert deep.launch_ns == flat.launch_ns


def test_attention_takes_the_figures_of_products_unless_it_has_its_own() -> None:
    kernel = attention(2, 4, queries=64, keys=64, dim=16)
    assert kernel.flops == 4 * 2 * 4 * 64 * 64 * 16
    assert cost(kernel, GPU).launch_ns == 9000
    own = dataclasses.replace(GPU, efficiency={**GPU.efficiency, "attention": 0.25})
    assert cost(kernel, own).arithmetic_s == pytest.approx(2 * cost(kernel, GPU).arithmetic_s)


def test_tf32_is_float32_where_the_profile_has_no_rate_of_its_own() -> None:
    kernel = gemm(64, 32, 16, dtype="float32")
    rounded = dataclasses.replace(kernel, dtype="tf32")
    assert kernel.flops == 2 * 64 * 32 * 16
    assert cost(rounded, GPU) == cost(kernel, GPU)
    quick = dataclasses.replace(GPU, flops_per_s={"float32": 5e10, "tf32": 2e11})
    assert cost(rounded, quick).arithmetic_s == pytest.approx(cost(kernel, quick).arithmetic_s / 4)


def test_products_of_eight_bits_take_half_of_bfloat16s_time_on_gpus_that_have_them() -> None:
    kernel = dataclasses.replace(gemm(64, 32, 16), dtype="float8_e4m3fn")
    h100, a100 = (load_profile(name).host.gpu for name in ("dgx_h100", "dgx_a100"))
    as_bfloat16 = cost(dataclasses.replace(kernel, dtype="bfloat16"), h100)
    assert cost(kernel, h100).arithmetic_s == pytest.approx(as_bfloat16.arithmetic_s / 2)
    with pytest.raises(ProgramError, match="no flop/s for dtype 'float8_e4m3fn' of a gemm kernel"):
        cost(kernel, a100)


def test_bytes_in_l2_take_l2_time_and_no_memory_time() -> None:
    kernel = Kernel(kind="default", bytes_read=8e6, bytes_written=2e6, bytes_reread=7e6)
    assert cost(kernel, GPU).memory_bytes == pytest.approx(4 * 3e6)
    slow = dataclasses.replace(GPU, l2_bytes_per_s=2 * GPU.memory_bytes_per_s)
    assert cost(kernel, slow).memory_bytes == pytest.approx(4 * 5e6)


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
