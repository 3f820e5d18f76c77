"""NCCL's own results as recorded from its compiled tuning model, and where ours deviate from them.

NCCL's record of its own results (`nccl_tuning_golden.json`) has these names:

    nRanks, nNodes, cc                    ranks, nodes, compute_capability
    vendor 1, 2                           cpu "intel", "amd"
    nChannels                             channels
    treePattern 3 (1 balanced, 2 split)   plain_tree
    nvs, collnet > 0                      nvswitch, network_offload
    graphs, by algos                      graphs, by ALGORITHMS
      nch, bwi, bwo, lat                    channels, intra_gb_per_s, inter_gb_per_s, net_latency_us
      ti, to, same                          intra_type, inter_type, same_channels
    query [func, nBytes, numPipeOps]      Operation(FUNCTIONS[func], size_bytes, together)
    lat, bw by [func][algo][proto]        `latency_us`, `gb_per_s` of FUNCTIONS, ALGORITHMS, PROTOCOLS
    times by [query][algo][proto]         `total_ns` / 1000 of that one of the `choices`; -1: it is not among them
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path as File
from typing import Any, TypeAlias

from sim.nccl.model.predictor import TunedCollective, choices, gb_per_s, latency_us
from sim.nccl.model.topology import ALGORITHMS, FUNCTIONS, PROTOCOLS, Cpu, Graph, GroupTopology, Path

Config: TypeAlias = dict[str, Any]

RECORD = json.loads((File(__file__).parents[3] / "vectors" / "data" / "nccl_tuning_golden.json").read_text())
CONFIGS: list[Config] = RECORD["configs"]

RELATIVE = 1e-5
PLAIN_TREE = 3
CPUS: dict[int, Cpu] = {1: "intel", 2: "amd"}


def topology_of(config: Config) -> GroupTopology:
    return GroupTopology(
        ranks=config["nRanks"],
        nodes=config["nNodes"],
        compute_capability=config["cc"],
        cpu=CPUS[config["vendor"]],
        channels=config["nChannels"],
        plain_tree=config["treePattern"] == PLAIN_TREE,
        nvswitch=config["nvs"] > 0,
        network_offload=config["collnet"] > 0,
        graphs={name: graph_of(graph) for name, graph in zip(ALGORITHMS, config["graphs"], strict=True)},
    )


def graph_of(graph: Config) -> Graph:
    return Graph(
        channels=graph["nch"],
        intra_gb_per_s=graph["bwi"],
        inter_gb_per_s=graph["bwo"],
        net_latency_us=graph["lat"],
        intra_type=Path(graph["ti"]),
        inter_type=Path(graph["to"]),
        same_channels=bool(graph["same"]),
    )


def operation_of(query: list[int]) -> TunedCollective:
    function, size_bytes, together = query
    return TunedCollective(function=FUNCTIONS[function], size_bytes=size_bytes, together=together)


def times_us(topology: GroupTopology, operation: TunedCollective) -> list[list[float]]:
    """By algorithm and protocol, -1 where it is disabled: as in the record."""
    found = {(choice.algorithm, choice.protocol): choice.total_ns / 1e3 for choice in choices(topology, operation)}
    return [[found.get((algorithm, protocol), -1.0) for protocol in PROTOCOLS] for algorithm in ALGORITHMS]


def compare(config: Config) -> Iterator[tuple[str, float, float]]:
    """What, ours, NCCL's."""
    topology, golden = topology_of(config), config["golden"]
    kinds = (enumerate(FUNCTIONS), enumerate(ALGORITHMS), enumerate(PROTOCOLS))
    for (f, function), (a, algorithm), (p, protocol) in product(*kinds):
        way = (function, algorithm, protocol)
        yield f"latency of {way}", latency_us(topology, *way), golden["lat"][f][a][p]
        yield f"bandwidth of {way}", gb_per_s(topology, *way), golden["bw"][f][a][p]
    for query, theirs in zip(config["queries"], golden["times"], strict=True):
        ours = times_us(topology, operation_of(query))
        for (a, algorithm), (p, protocol) in product(enumerate(ALGORITHMS), enumerate(PROTOCOLS)):
            yield f"time of {query} by {algorithm} {protocol}", ours[a][p], theirs[a][p]


def deviations(config: Config) -> Iterator[str]:
    """One sentence for each result that is not NCCL's."""
    for what, ours, theirs in compare(config):
        if abs(ours - theirs) > RELATIVE * abs(theirs):
            yield f"{what}: {ours}; NCCL says {theirs}"
