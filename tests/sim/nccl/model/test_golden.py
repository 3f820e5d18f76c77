"""The choice that NCCL 2.30.7-1 made, and a simulated box; its tables and times are replayed in tests/vectors."""

from __future__ import annotations

from itertools import product

import pytest

from sim.nccl.costs import GroupShape, NcclCosts
from sim.nccl.model.predictor import choices, choose
from sim.nccl.model.topology import ALGORITHMS, PROTOCOLS
from sim.nccl.tuning import topology
from tests.sim.nccl.model.golden import CONFIGS, RECORD, Config, operation_of, topology_of


def name_of(config: Config) -> str:
    return f"{config['nRanks']}x{config['nNodes']}-cc{config['cc']}-{config['tag'].split(' ')[0]}"


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_the_choice_is_the_quickest_of_nccls_own_times(config: Config) -> None:
    topology = topology_of(config)
    for query, times in zip(config["queries"], config["golden"]["times"], strict=True):
        chosen = choose(topology, operation_of(query))
        quickest = min(time for row in times for time in row if time >= 0)
        place = ALGORITHMS.index(chosen.algorithm), PROTOCOLS.index(chosen.protocol)
        assert times[place[0]][place[1]] == pytest.approx(quickest, rel=1e-5)


def test_names_have_the_order_of_nccls_golden_record() -> None:
    assert [name.lower() for name in RECORD["algos"]] == [name.replace("_", "") for name in ALGORITHMS]
    assert tuple(RECORD["protos"]) == PROTOCOLS


def test_a_simulated_hopper_host_takes_nccls_predicted_times() -> None:
    """18 NVLinks a GPU: 12 channels of 30 GB/s, as the record assumes of it; 4 ranks and 8."""
    costs = NcclCosts(
        intra_bytes_per_s=450e9,
        inter_bytes_per_s=48e9,
        nic_latency_ns=0,
        hosts=1,
        ranks_per_host=8,
        compute_capability=90,
        nvlink=True,
    )
    for config in CONFIGS[:2]:
        shape = GroupShape(ranks=config["nRanks"], hosts=1, rails=1)
        for query, times in zip(config["queries"], config["golden"]["times"], strict=True):
            operation = operation_of(query)
            if operation.together == 1:
                ours = choices(topology(shape, costs), operation)
                found = {
                    (choice.algorithm, choice.protocol): choice.total_ns / 1e3
                    for choice in ours
                    if choice.algorithm in ("tree", "ring")  # the record has other heads for NVLS
                }
                places = product(enumerate(("tree", "ring")), enumerate(PROTOCOLS))
                theirs = {(row, column): times[a][p] for (a, row), (p, column) in places if times[a][p] >= 0}
                assert found == pytest.approx(theirs, rel=1e-5)
