"""NCCL's own cost model on many topologies: every latency, bandwidth and time, from ours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from sim.nccl.model.topology import ALGORITHMS, FUNCTIONS, PROTOCOLS, Path
from tests.sim.nccl.model.golden import CPUS, deviations
from tests.vectors.fields import COUNT, NUMBER, SIZE, TEXT, Each, Fields, Is, VectorError, one_of
from tests.vectors.files import Case, Check, File, Format

ALGOS = ["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"]
FUNCS = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"]
UNITS = (
    "us, GB/s, bytes; time -1 = disabled; query = [func, nBytes, numPipeOps]; graphs order = algos;"
    " lat/bw [func][algo][proto]"
)
ASSUMED = "cpuArch x86, no NCCL_* env, no collnet/tuner plugin, netDeviceType HOST, PAT_ENABLE auto"

SWITCH = one_of(0, 1)
PATH = one_of(*map(int, Path))
GRAPH = Fields(
    {"nch": COUNT, "bwi": NUMBER, "bwo": NUMBER, "lat": NUMBER, "ti": PATH, "to": PATH, "same": SWITCH},
)
QUERY = Is(
    "[function, bytes, operations]",
    lambda query: (
        isinstance(query, list)
        and [type(item) for item in query] == [int] * 3
        and query[0] in range(len(FUNCS))
        and query[1] >= 0 < query[2]
    ),
)
TABLE = Each(Each(Each(NUMBER)))
CONFIG = Fields(
    {
        "tag": TEXT,
        "nRanks": SIZE,
        "nNodes": SIZE,
        "cc": SIZE,
        "vendor": one_of(*CPUS),
        "treePattern": one_of(1, 2, 3),
        "nChannels": SIZE,
        "nvs": SWITCH,
        "collnet": SWITCH,
        "graphs": Each(GRAPH),
        "queries": Each(QUERY),
        "golden": Fields({"lat": TABLE, "bw": TABLE, "times": TABLE}),
    },
    {"id": TEXT},
)


def check_shape(config: Case, where: str) -> None:
    """Every table has its whole size, so that nothing is left out."""
    golden, ways = config["golden"], [len(PROTOCOLS)] * len(ALGORITHMS)
    sizes = {"lat": len(FUNCTIONS), "bw": len(FUNCTIONS), "times": len(config["queries"])}
    for name, count in sizes.items():
        found = [[len(row) for row in rows] for rows in golden[name]]
        if found != [ways] * count:
            raise VectorError(f"{where}.golden.{name}: expected {count} tables of {len(ways)} x {len(PROTOCOLS)}")
    if len(config["graphs"]) != len(ALGORITHMS):
        raise VectorError(f"{where}.graphs has {len(config['graphs'])} items, expected {len(ALGORITHMS)}")


def check(config: Case) -> None:
    assert list(deviations(config)) == []


def replays(file: File, where: str, config: Case) -> Iterator[tuple[str, Check]]:
    CONFIG.check(config, where)
    check_shape(config, where)
    yield "", partial(check, config)


def in_order(names: list[str]) -> Any:
    """The columns of the tables."""
    return Is(f"{names}", lambda given: given == names)


FORMAT = Format(
    name="nccl_tuning",
    cases="configs",
    signature=frozenset({"golden", "queries", "graphs"}),
    head={
        "what": TEXT,
        "algos": in_order(ALGOS),
        "protos": in_order(list(PROTOCOLS)),
        "funcs": in_order(FUNCS),
        "units": one_of(UNITS),
        "assumed": one_of(ASSUMED),
    },
    replays=replays,
)
