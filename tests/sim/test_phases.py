"""Links against flows: one activity with its load on every link takes what its flows take."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scenarios.hardware import Network
from scenarios.rank import Kernel, Rank
from sim.collectives import nccl
from sim.phases import costs_of
from sim.run import simulate
from tests.small import Play, cluster, scenario

Op = Literal["all_to_all", "all_reduce", "reduce_scatter", "all_gather", "broadcast"]
OPS: tuple[Op, ...] = ("all_to_all", "all_reduce", "reduce_scatter", "all_gather", "broadcast")
MIB = 1 << 20


def takes_ns(op: Op, library: str, fidelity: str, shape: tuple[int, int], elements: int, splits: list[int]) -> int:
    """One collective on an idle leaf-spine cluster; `splits` are the uneven shares of an all-to-all, used in turn."""
    size = math.prod(shape)

    def meta(count: int) -> torch.Tensor:
        return torch.empty(count, device="meta")

    def split(source: int, target: int) -> int:
        return splits[(source * size + target) % len(splits)] * elements // 8

    async def program(rank: Rank) -> None:
        me, whole = rank.rank, elements * size
        if op == "all_to_all":
            sends, receives = [split(me, peer) for peer in range(size)], [split(peer, me) for peer in range(size)]
            await rank.all_to_all_single(meta(sum(receives)), meta(sum(sends)), receives, sends)
        elif op == "all_reduce":
            await rank.all_reduce(meta(whole))
        elif op == "reduce_scatter":
            await rank.reduce_scatter_tensor(meta(elements), meta(whole))
        elif op == "all_gather":
            await rank.all_gather_into_tensor(meta(whole), meta(elements))
        else:
            await rank.broadcast(meta(whole), 1)

    network = Network(kind="leaf_spine", hosts_per_leaf=2, oversubscription=2.0)
    made = scenario(cluster(*shape, network=network), library=library, fidelity=fidelity, payload="sizes")
    return max(span.end_ns for span in simulate(made, Play(program)).spans)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (4, 2), (1, 4)])
def test_links_take_what_flows_take(op: Op, library: str, shape: tuple[int, int]) -> None:
    """Of messages long against their latency."""
    elements = MIB if shape[0] > 1 else 16 * MIB
    times = [takes_ns(op, library, fidelity, shape, elements, [8]) for fidelity in ("flows", "links")]
    assert times[1] == pytest.approx(times[0], rel=0.02)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(2, 2), (4, 1), (3, 2), (1, 4)]),
    st.lists(st.integers(0, 16), min_size=3, max_size=11).filter(any),
    st.sampled_from(["gloo", "nccl"]),
)
def test_uneven_exchanges_take_the_time_of_their_busiest_link(
    shape: tuple[int, int], splits: list[int], library: str
) -> None:
    """Of messages long against their latency, also where only neighbours in a host send any."""
    size = math.prod(shape)
    assume(any(splits[pair % len(splits)] for pair in range(size * size) if pair // size != pair % size))
    times = [takes_ns("all_to_all", library, fidelity, shape, 16 * MIB, splits) for fidelity in ("flows", "links")]
    flows, links = times
    assert links <= flows * 1.01  # one activity is never held up by how its flows share
    assert links == pytest.approx(flows, rel=0.25)


def kernel_beside_a_collective(*, late_ns: int, kernel: Kernel, multiprocessors: int | None) -> tuple[int, int]:
    """ns of a kernel that begins with an all-reduce on one rank, and of that all-reduce; the others enter later."""
    gpu = dataclasses.replace(cluster().host.gpu, multiprocessors=multiprocessors)
    on = cluster(1, 4, gpu=gpu)

    async def program(rank: Rank) -> None:
        beside = rank.stream("beside")
        if rank.rank:
            await rank.compute(Kernel(kind="wait", flops=late_ns * 1e4), int, label="late")
        reduced = rank.all_reduce(torch.empty(1 << 26, device="meta"), label="reduced")
        if not rank.rank:
            await beside.compute(kernel, int, label="kernel")
        await reduced

    spans = simulate(scenario(on, library="nccl", payload="sizes"), Play(program)).spans
    taken = {span.label: span.end_ns - span.start_ns for span in spans if not span.rank}
    return taken["kernel"], taken["reduced"]


def test_a_channel_keeps_a_multiprocessor_from_kernels_while_its_rank_is_in_the_collective() -> None:
    """Also while it waits for others. Of kernels nothing else changes, and nothing of the collective."""
    product = Kernel(kind="gemm", flops=1e9, dtype="float32")
    alone_ns, reduced_ns = kernel_beside_a_collective(late_ns=0, kernel=product, multiprocessors=None)
    beside_ns, same_ns = kernel_beside_a_collective(late_ns=0, kernel=product, multiprocessors=16)
    assert (alone_ns, same_ns) == (100_000, reduced_ns)
    channels = nccl.channels([0] * 4, costs_of(cluster(1, 4)))
    assert beside_ns == pytest.approx(alone_ns / (1 - channels / 16), rel=1e-3)
    waiting_ns, _ = kernel_beside_a_collective(late_ns=500_000, kernel=product, multiprocessors=16)
    assert waiting_ns == beside_ns


def test_what_goes_over_links_takes_memory_from_kernels() -> None:
    look_up = Kernel(kind="embedding_lookup", bytes_read=1e8)
    alone_ns, reduced_ns = kernel_beside_a_collective(late_ns=0, kernel=look_up, multiprocessors=None)
    beside_ns, same_ns = kernel_beside_a_collective(late_ns=0, kernel=look_up, multiprocessors=10**6)
    assert same_ns == reduced_ns > 2 * alone_ns
    assert 1.05 * alone_ns < beside_ns < 2 * alone_ns
