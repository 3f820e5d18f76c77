"""The law of collectives within a host: held against what others have measured, and how its terms behave."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.seam.traits import Function
from sim.nccl import one_host
from sim.nccl.model.predictor import TunedCollective
from sim.nccl.model.topology import Generation, Protocol
from sim.nccl.one_host import OneHostGroup
from twinstep.published.simulated import predict

FILE = Path(__file__).parents[2] / "data" / "published" / "one_host.csv"
GROUP = OneHostGroup(ranks=8, link_gb_per_s=370.8, channels=24, generation="Hopper", nvlink=True)
RINGS: tuple[Function, ...] = ("all_reduce", "all_gather", "reduce_scatter")
ANY_GROUP = st.builds(
    OneHostGroup,
    ranks=st.integers(2, 72),
    link_gb_per_s=st.floats(5, 1000),
    channels=st.integers(1, 32),
    generation=st.sampled_from(("Volta", "Ampere", "Hopper", "Blackwell")),
    nvlink=st.booleans(),
)


def ring_us(function: Function, size_bytes: int, group: OneHostGroup, protocol: Protocol, together: int = 1) -> float:
    operation = TunedCollective(function=function, size_bytes=size_bytes, together=together)
    if protocol == "Simple":
        found = one_host.simple_ring(operation, group)
    else:
        found = one_host.low_latency_ring(operation, group, protocol)
    return found.latency_us + found.transfer_us


@pytest.mark.slow
def test_collectives_on_one_host_meet_nccl_tests_within_7_percent() -> None:
    """All 504 rows: 10 % in the mean from 64 KiB on and 15 % at all sizes is the bar, on each GPU and count of them."""
    rows = pd.read_csv(FILE)
    names = ["op", "library", "gpu", "nodes", "gpus_per_node", "size_bytes"]
    rows["predicted_us"] = [
        predict(**{str(key): value for key, value in row.items()}).predicted_us
        for row in rows[names].to_dict("records")
    ]
    rows["error"] = (rows["predicted_us"] / rows["time_us"] - 1).abs()
    for _, of in rows.groupby(["gpu", "gpus_per_node"]):
        assert of["error"].mean() <= 0.07
        assert of.query("size_bytes >= 65536")["error"].mean() <= 0.07
    assert rows["error"].mean() <= 0.05
    assert rows.groupby("op")["error"].mean().max() <= 0.075


@given(
    function=st.sampled_from((*RINGS, "broadcast", "reduce")),
    protocol=st.sampled_from(("LL", "LL128", "Simple")),
    size_bytes=st.integers(1, 1 << 33),
    group=ANY_GROUP,
)
def test_more_bytes_or_a_slower_link_never_take_less(
    function: Function, protocol: Protocol, size_bytes: int, group: OneHostGroup
) -> None:
    took_us = ring_us(function, size_bytes, group, protocol)
    slower = replace(group, link_gb_per_s=group.link_gb_per_s / 2)
    assert 0 < took_us <= ring_us(function, 2 * size_bytes, group, protocol) * (1 + 1e-9)
    assert took_us <= ring_us(function, size_bytes, slower, protocol) * (1 + 1e-9)


@given(protocol=st.sampled_from(("LL", "LL128", "Simple")), size_bytes=st.integers(1, 1 << 33), group=ANY_GROUP)
def test_no_ring_is_quicker_than_its_link(protocol: Protocol, size_bytes: int, group: OneHostGroup) -> None:
    """A link carries 2 (p-1) / p of the buffer in an all-reduce, and the flags of LL and LL128."""
    on_link_bytes = 2 * (group.ranks - 1) / group.ranks * size_bytes / one_host.PAYLOAD_SHARES[protocol]
    least_us = on_link_bytes / (1e3 * group.link_gb_per_s)
    assert ring_us("all_reduce", size_bytes, group, protocol) >= least_us * (1 - 1e-9)


@pytest.mark.parametrize("generation", ["Ampere", "Hopper", "Blackwell"])
def test_small_buffers_take_a_start_and_a_hop_a_step(generation: Generation) -> None:
    """From 2 to 4 and from 4 to 8 GPUs an all-gather has 2 and 4 steps more, an all-reduce twice as many."""
    took = {
        (function, ranks): ring_us(function, 512, replace(GROUP, ranks=ranks, generation=generation), "LL")
        for function in ("all_gather", "all_reduce")
        for ranks in (2, 4, 8)
    }
    hop_us = (took["all_gather", 4] - took["all_gather", 2]) / 2
    assert took["all_gather", 8] - took["all_gather", 4] == pytest.approx(4 * hop_us, rel=1e-3)
    assert took["all_reduce", 8] - took["all_reduce", 2] == pytest.approx(12 * hop_us, rel=1e-3)


def test_several_in_one_kernel_share_its_start() -> None:
    one_us = ring_us("all_reduce", 1 << 16, GROUP, "LL")
    four_us = ring_us("all_reduce", 4 << 16, GROUP, "LL", together=4)
    start_us = GROUP.law.ll.start_us + GROUP.law.ll.blocks_us * math.log2(8) / math.log2(16)
    assert four_us == pytest.approx(4 * one_us - 3 * start_us)


def test_over_pci_express_more_peers_get_a_smaller_share_of_the_lanes() -> None:
    """On 8 cards a byte takes 1.75 of what it takes between two; rings have neighbours only."""
    where: dict[str, Any] = {"library": "nccl", "gpu": "L40S", "nodes": 1, "size_bytes": 1 << 30}
    two_us, eight_us = (predict(op="all_to_all", gpus_per_node=gpus, **where).predicted_us for gpus in (2, 8))
    assert eight_us / two_us == pytest.approx(1.75 * (7 / 8) / (1 / 2), rel=0.2)
    of_two_us, of_eight_us = (predict(op="all_gather", gpus_per_node=gpus, **where).predicted_us for gpus in (2, 8))
    assert of_eight_us / of_two_us == pytest.approx((7 / 8) / (1 / 2), rel=0.05)


@pytest.mark.parametrize("gpu", ["H200", "B300", "GB200", "GB300", "L40S", "A100", "V100"])
@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"])
def test_every_profile_with_such_a_gpu_predicts_one_host(gpu: str, gpus: int, op: str) -> None:
    took = [
        predict(op=op, library="nccl", gpu=gpu, nodes=1, gpus_per_node=gpus, size_bytes=size).predicted_us
        for size in (512, 1 << 30)
    ]
    assert 3 < took[0] < 60
    assert took[1] > (1 << 30) / 1.2e6
