"""The host launches kernels ahead of the GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from reports.run import Run
from reports.sections.model import Facts
from reports.sections.run.glance import GLANCE
from reports.sections.run.headline import bound_by_host
from reports.sections.run.subject import RunView
from reports.sections.run.summary import verdict
from scenarios.config.hardware import Cluster
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from sim.run import simulate
from tests.small import Play, cluster, scenario

LAUNCH_NS, RAMP_NS = 10_000, 2_000


def gpus(**of: Any) -> Cluster:
    """One GPU of 1e13 flop/s whose kernels take 10 us to launch and 2 us to get going."""
    gpu = dataclasses.replace(cluster(1, 1).host.gpu, launch_ns=LAUNCH_NS, ramp_ns=RAMP_NS, **of)
    return cluster(1, 1, gpu=gpu)


def step_ns(kernels: list[Kernel], on: Cluster, waits: int = 0) -> int:
    """Of one step in which they run one after the other, with a wait of the host behind so many of them."""

    async def body(rank: Rank) -> None:
        with rank.step(0):
            for number, kernel in enumerate(kernels, 1):
                work = rank.compute(kernel, lambda: None)
                await (rank.synchronize(work) if number == waits else work)

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


def test_launches_ahead_of_the_gpu_are_hidden() -> None:
    """While a long kernel runs, the host launches the short ones behind it."""
    long, short = Kernel(kind="test", flops=1e9), Kernel(kind="test", flops=1e7)
    assert step_ns([long, *[short] * 5], gpus()) == LAUNCH_NS + 100_000 + RAMP_NS + 5 * (RAMP_NS + 1_000)


def test_where_the_host_waits_it_launches_from_then_on() -> None:
    """A launch after the wait is exposed, whatever the kernel; the wait itself takes no longer than the kernels."""
    long, short = Kernel(kind="test", flops=1e9), Kernel(kind="test", flops=1e7)
    assert step_ns([long, long], gpus(), waits=1) == 2 * (LAUNCH_NS + RAMP_NS + 100_000)
    assert step_ns([short] * 4, gpus(), waits=2) == 2 * (2 * LAUNCH_NS + RAMP_NS + 1_000)
    assert step_ns([long] * 3, gpus(), waits=3) == LAUNCH_NS + 3 * (RAMP_NS + 100_000)


def test_launches_on_another_stream_before_a_wait_are_not_delayed() -> None:
    long, short = Kernel(kind="test", flops=1e9), Kernel(kind="test", flops=1e7)

    async def body(rank: Rank) -> None:
        side = rank.stream("side")
        with rank.step(0):
            beside = [side.compute(kernel, lambda: None) for kernel in (long, long)]
            await rank.synchronize(rank.compute(short, lambda: None))
            for work in beside:
                await work

    spans = simulate(scenario(gpus()), Play(body)).spans
    first, second = sorted((span for span in spans if span.stream == "side"), key=lambda span: span.sequence)
    assert first.start_ns == 0
    assert first.end_ns > 100_000
    assert second.end_ns - second.start_ns == RAMP_NS + 100_000


def test_a_work_may_be_waited_for_by_a_stream_and_by_the_host() -> None:
    long = Kernel(kind="test", flops=1e9)

    async def body(rank: Rank) -> None:
        side = rank.stream("side")
        with rank.step(0):
            work = side.compute(long, lambda: 3)
            rank.after(work)
            assert await rank.synchronize(work) == 3
            await rank.compute(long, lambda: None)

    first, second = (span for span in simulate(scenario(gpus()), Play(body)).spans if span.kind == "compute")
    assert {first.end_ns, second.end_ns} == {each * (LAUNCH_NS + RAMP_NS + 100_000) for each in (1, 2)}


def test_a_cpu_launches_nothing_ahead() -> None:
    core = dataclasses.replace(gpus().host.gpu, kind="cpu", ramp_ns=0)
    long = Kernel(kind="test", flops=1e9)
    assert step_ns([long] * 5, cluster(1, 1, gpu=core)) == 5 * (LAUNCH_NS + 100_000)


SHORT = Kernel(kind="test", flops=1e7)  # 1 us
NODE_NS, COLLECTIVE_NS = 30_000, 50_000


def eager(gpu_count: int = 1) -> Cluster:
    """GPUs as of `gpus`, whose host takes 30 us for a node of autograd and 50 us to issue a collective."""
    gpu = gpus().host.gpu
    costs = dataclasses.replace(gpu.eager, node_ns=NODE_NS, collective_ns=COLLECTIVE_NS)
    return cluster(1, gpu_count, gpu=dataclasses.replace(gpu, eager=costs))


def test_a_kernel_waits_for_what_its_host_does_before_it() -> None:
    kernel = dataclasses.replace(SHORT, host=HostWork(nodes=2))
    assert step_ns([kernel] * 5, eager()) == 5 * (LAUNCH_NS + 2 * NODE_NS) + RAMP_NS + 1_000
    assert step_ns([kernel], cluster(1, 1, gpu=dataclasses.replace(eager().host.gpu, kind="cpu"))) < 2 * NODE_NS


def test_a_host_is_behind_from_step_to_step() -> None:
    """In the first step a long kernel hides what the host does; what is left of that comes ahead of the second step."""

    async def body(rank: Rank) -> None:
        for index in range(2):
            with rank.step(index):
                await rank.compute(SHORT, lambda: None)
                rank.host_work(HostWork(nodes=3))

    first, second = [span for span in simulate(scenario(eager()), Play(body)).spans if span.kind == "step"]
    alone_ns = LAUNCH_NS + RAMP_NS + 1_000
    assert (first.end_ns - first.start_ns, second.end_ns - second.start_ns) == (alone_ns, 3 * NODE_NS + LAUNCH_NS)


def test_a_host_runs_ahead_of_its_gpu_into_the_next_step() -> None:
    long = Kernel(kind="test", flops=1e10)  # 1 ms

    async def body(rank: Rank) -> None:
        for index in range(2):
            with rank.step(index):
                await rank.compute(dataclasses.replace(long, host=HostWork(nodes=1)), lambda: None)

    _, second = [span for span in simulate(scenario(eager()), Play(body)).spans if span.kind == "step"]
    assert second.end_ns - second.start_ns == RAMP_NS + 1_000_000


def test_a_collective_begins_when_its_host_has_issued_it() -> None:
    async def body(rank: Rank) -> None:
        with rank.step(0):
            await rank.all_reduce(torch.empty(4, device=rank.device), label="sum")

    made = simulate(scenario(eager(2)), Play(body))
    assert {span.start_ns for span in made.spans if span.label == "sum"} == {COLLECTIVE_NS}


def test_a_step_that_its_host_bounds_says_so() -> None:
    async def body(rank: Rank) -> None:
        with rank.step(0):
            await rank.compute(dataclasses.replace(SHORT, host=HostWork(nodes=1)), lambda: None)

    run = Run.of(simulate(scenario(eager()), Play(body)))
    idle = (LAUNCH_NS + NODE_NS) / (LAUNCH_NS + NODE_NS + RAMP_NS + 1_000)
    assert bound_by_host(run) == f"bound by the host: GPU idle {100 * idle:.1f} % of the step, waiting for launches"
    shown = GLANCE.show(RunView.of(run), "page")
    assert shown is not None
    notes = [fact.note for block in shown.blocks if isinstance(block, Facts) for fact in block.items]
    assert "100.0 % of a step, mean rank, launching included" in notes


@pytest.mark.parametrize(("on_cpu", "is_named"), [("4 ms of data loading", True), ("data loading, hidden", False)])
def test_the_longest_cpu_work_of_a_host_that_bounds_its_step_is_named(on_cpu: str, is_named: bool) -> None:
    async def body(rank: Rank) -> None:
        with rank.step(0):
            await rank.compute(dataclasses.replace(SHORT, host=HostWork(turns=40_000)), lambda: None)

    made = simulate(scenario(eager()), Play(body))
    made = dataclasses.replace(made, info=dataclasses.replace(made.info, on_cpu=(on_cpu, "other work")))
    (limits,) = [fact.value for fact in verdict(RunView.of(Run.of(made))) if fact.name == "limited by"]
    idle, *more = limits.split("\n")
    assert idle.startswith("the host: GPU idle ")
    assert more == [f"CPU work of the hosts: {on_cpu}"] * is_named
