"""All-reduces that the network's switches reduce (SHARP)."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.load import load_profile
from sim.nccl import plan as nccl
from sim.nccl.costs import NcclCosts, costs_of
from sim.nccl.plan import NcclPlan
from tests.sim import collective_calls as make
from twinstep.published.simulated import PredictedCollective, predict

FILE = Path(__file__).parents[2] / "data" / "published" / "sharp.csv"
PROFILE = FILE.with_name("p6_b200_sharp.toml")
LARGE = 1 << 30


def plan_call(profile: str, hosts: int, size_bytes: int, *, sharp: bool = True, op: str = "all_reduce") -> NcclPlan:
    costs: NcclCosts = replace(costs_of(load_profile(profile)), hosts=hosts, sharp=sharp)
    layout = tuple(rank // 8 for rank in range(8 * hosts))
    return nccl.plan(make.reduction(op, size_bytes, len(layout)), layout, costs)


@pytest.mark.parametrize(
    ("profile", "algorithm"), [("dgx_h100", "nvls"), ("dgx_a100", "collnet_direct"), ("p6_b200", "collnet_chain")]
)
@given(hosts=st.integers(2, 12))
def test_with_sharp_a_nic_sends_its_part_once_and_receives_the_sum_once(
    profile: str, algorithm: str, hosts: int
) -> None:
    plan = plan_call(profile, hosts, LARGE)
    if profile == "dgx_h100" and hosts == 2:
        assert plan.algorithm == "nvls_tree"  # between two hosts a tree sends no more, and NCCL takes it
        return
    assert plan.algorithm == algorithm
    (phase,) = plan.phases
    sent: dict[int, float] = defaultdict(float)
    received: dict[int, float] = defaultdict(float)
    for source, target, size_bytes in phase.transfers:
        if source // 8 != target // 8:
            sent[source] += size_bytes
            received[target] += size_bytes
    part = LARGE / 8 / load_profile(profile).nccl_efficiency
    assert sent == received == pytest.approx(dict.fromkeys(range(8 * hosts), part))


@given(size_bytes=st.integers(1, LARGE // 64).map(lambda count: 64 * count), hosts=st.integers(3, 12))
def test_more_hosts_take_no_longer(size_bytes: int, hosts: int) -> None:
    few, many = (plan_call("dgx_a100", count, size_bytes) for count in (hosts, hosts + 1))
    if few.algorithm == many.algorithm == "collnet_direct":
        assert (few.phases[0].latency_ns, few.phases[0].least_s) == (many.phases[0].latency_ns, many.phases[0].least_s)
    else:
        assert size_bytes < 1 << 20  # NCCL's trees are for small buffers


@pytest.mark.parametrize("op", ["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"])
def test_only_all_reduces_over_hosts_are_offloaded(op: str) -> None:
    assert plan_call("dgx_a100", 1, LARGE, op=op) == plan_call("dgx_a100", 1, LARGE, op=op, sharp=False)
    several = [plan_call("dgx_a100", 4, LARGE, op=op, sharp=sharp) for sharp in (True, False)]
    assert (several[0] == several[1]) is (op != "all_reduce")


def predict_row(row: dict[str, str]) -> PredictedCollective:
    return predict(
        op=row["op"],
        library=row["library"],
        gpu=row["gpu"],
        nodes=int(row["nodes"]),
        gpus_per_node=int(row["gpus_per_node"]),
        size_bytes=int(row["size_bytes"]),
        profile=str(PROFILE),
    )


def test_published_times_by_sharp() -> None:
    """One row, of 4 nodes, has set what switches reach; the others are as far off as these bars say."""
    with FILE.open() as stream:
        rows = list(csv.DictReader(stream))
    errors = [predict_row(row).predicted_us / float(row["time_us"]) - 1 for row in rows]
    assert max(map(abs, errors)) < 0.04
    assert sum(map(abs, errors)) / len(errors) < 0.02
