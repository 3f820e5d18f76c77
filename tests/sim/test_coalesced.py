"""What a coalesced all-reduce takes: the bytes of all its tensors, one launch and one latency."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from real.check.program import scenario_of
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.calls import Call
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from sim.gloo.algorithms import schedule, totals
from sim.gloo.script import Copy
from sim.nccl import plan as nccl
from sim.run import simulate
from tests.sim.collective_calls import reduction
from tests.sim.nccl.test_plan import HOPPER, layout_of


class Calls(Program):
    """All at once as one call, in a group of this rank alone too, then each by itself."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes

    async def __call__(self, rank: Rank) -> None:
        tensors = [torch.empty(size // 4, device=rank.device) for size in self.sizes]
        alone = [rank.new_group([member]) for member in range(rank.world_size)][rank.rank]
        await rank.barrier()
        await rank.all_reduce_coalesced(tensors, label="together")
        await rank.all_reduce_coalesced(tensors, group=alone, label="copied")
        for each in tensors:
            await rank.barrier()
            await rank.all_reduce(each, label="single")


def scenario(library: Any, hosts: int) -> Scenario:
    if library == "gloo":
        return scenario_of(hosts, 2, name="coalesced", timeout_s=1.0).with_run(payload="sizes")
    made = load("criteo_dlrm_8x8")
    return dataclasses.replace(made.with_run(fidelity="flows"), cluster=dataclasses.replace(made.cluster, hosts=hosts))


def times_ns(made: Scenario, sizes: tuple[int, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"together": [], "copied": [], "single": []}
    for one in simulate(made, Calls(sizes)).spans:
        if one.rank == 0 and one.kind != "barrier":
            found[one.label].append(one.end_ns - one.start_ns)
    return found


SIZES = st.lists(st.integers(1, 1 << 13).map(lambda size: 4 * size * size), min_size=2, max_size=4).map(tuple)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(sizes=SIZES, hosts=st.sampled_from([1, 2]))
@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_a_coalesced_call_takes_between_the_longest_and_the_sum_of_single_calls(
    library: str, sizes: tuple[int, ...], hosts: int
) -> None:
    """But for gloo's copies into one buffer and out of it."""
    if library == "gloo":
        sizes = tuple(min(size, 1 << 20) for size in sizes)
    found = times_ns(scenario(library, hosts), sizes)
    (together,), (copied,), single = found["together"], found["copied"], found["single"]
    assert (copied > 0) == (library == "gloo")
    assert max(single) <= together <= sum(single) + copied


def coalesce(parts: tuple[int, ...], ranks: int) -> list[Call]:
    made = reduction("all_reduce_coalesced", sum(parts), ranks)
    return [dataclasses.replace(call, parts=parts) for call in made]


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_gloo_coalesces_into_one_buffer_with_copies_in_and_out(ranks: int) -> None:
    parts = (4000, 12, 88)
    scripts, alone = schedule(coalesce(parts, ranks)), schedule(reduction("all_reduce", 4100, ranks))
    for found, plain in zip(scripts, alone, strict=True):
        assert found == (Copy(4100), *plain, Copy(4100))
    assert totals(coalesce(parts, ranks)).copy_bytes == [8200] * ranks


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ((8, 8, 8), [[8, 8, 8]]),
        ((100, 0, 399), [[100, 399]]),
        ((400, 100), [[100], [400]]),
        ((1, 3, 4, 15, 16), [[1, 3], [4, 15], [16]]),
        ((0, 0), []),
    ],
)
def test_nccl_gives_those_of_like_size_one_algorithm(parts: tuple[int, ...], found: list[list[int]]) -> None:
    assert [*nccl.runs(parts)] == found


def test_nccl_has_one_latency_and_the_bytes_of_each_run() -> None:
    parts = (64 << 10, 64 << 20)
    found = nccl.plan(coalesce(parts, 16), layout_of(2, 8), HOPPER)
    single = [nccl.plan(reduction("all_reduce", size, 16), layout_of(2, 8), HOPPER) for size in parts]
    phases = [one.phases[0] for one in single]
    assert [phase.transfers for phase in found.phases] == [phase.transfers for phase in phases]
    assert [phase.latency_ns for phase in found.phases] == [max(phase.latency_ns for phase in phases), 0]
    assert found.algorithm == single[1].algorithm
    assert not nccl.plan(coalesce((0, 0), 16), layout_of(2, 8), HOPPER).phases


def test_nccl_chooses_for_the_sum_of_those_of_like_size() -> None:
    found = nccl.plan(coalesce((1 << 20,) * 64, 16), layout_of(2, 8), HOPPER)
    whole = nccl.plan(reduction("all_reduce", 64 << 20, 16), layout_of(2, 8), HOPPER)
    assert (found.algorithm, found.protocol) == (whole.algorithm, whole.protocol)
    assert [phase.transfers for phase in found.phases] == [phase.transfers for phase in whole.phases]
