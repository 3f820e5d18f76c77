"""The host launches kernels ahead of the GPU."""

from __future__ import annotations

import dataclasses

from scenarios.config.hardware import Cluster
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from sim.run import simulate
from tests.small import Play, cluster, scenario

LAUNCH_NS, RAMP_NS = 10_000, 2_000


def gpus(**of: int) -> Cluster:
    """One GPU of 1e13 flop/s whose kernels take 10 us to launch and 2 us to get going."""
    gpu = dataclasses.replace(cluster(1, 1).host.gpu, launch_ns=LAUNCH_NS, ramp_ns=RAMP_NS, **of)
    return cluster(1, 1, gpu=gpu)


def step_ns(kernels: list[Kernel], on: Cluster) -> int:
    """Of one step in which they run one after the other."""

    async def body(rank: Rank) -> None:
        with rank.step(0):
            for kernel in kernels:
                await rank.compute(kernel, lambda: None)

    (span,) = [span for span in simulate(scenario(on), Play(body)).spans if span.kind == "step"]
    return span.end_ns - span.start_ns


def test_long_kernels_wait_for_one_launch_only() -> None:
    long = Kernel(kind="test", flops=1e9)  # 100 us
    assert step_ns([long] * 5, gpus()) == LAUNCH_NS + 5 * (RAMP_NS + 100_000)


def test_short_kernels_wait_for_their_launches() -> None:
    short = Kernel(kind="test", flops=1e7)  # 1 us
    assert step_ns([short] * 5, gpus()) == 5 * LAUNCH_NS + RAMP_NS + 1_000


def test_a_kernel_of_many_operators_ends_after_its_last_launch() -> None:
    many = Kernel(kind="test", flops=1e7, launches=8)
    assert step_ns([many], gpus()) == 8 * LAUNCH_NS
    heavy = Kernel(kind="test", flops=1e10, launches=8)  # 1 ms
    assert step_ns([heavy], gpus()) == LAUNCH_NS + 8 * RAMP_NS + 1_000_000


def test_what_ran_ahead_hides_later_launches() -> None:
    """While a long kernel runs, the host launches the short ones behind it."""
    long, short = Kernel(kind="test", flops=1e9), Kernel(kind="test", flops=1e7)
    assert step_ns([long, *[short] * 5], gpus()) == LAUNCH_NS + 100_000 + RAMP_NS + 5 * (RAMP_NS + 1_000)


def test_a_cpu_launches_nothing_ahead() -> None:
    core = dataclasses.replace(gpus().host.gpu, kind="cpu", ramp_ns=0)
    long = Kernel(kind="test", flops=1e9)
    assert step_ns([long] * 5, cluster(1, 1, gpu=core)) == 5 * (LAUNCH_NS + 100_000)
