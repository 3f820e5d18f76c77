"""The constants of NCCL 2.30.7-1's tuning model.

Microseconds and GB/s; rows of three are one node, two, more. All but CollNet's are NCCL's own figures as published.
CollNet's follow from the golden record of NCCL's results; it fixes 2 x 3.7 + 31, the sum of CollNetDirect's Simple
hops, and not its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, get_args

from sim.nccl.model.topology import ALGORITHMS, PROTOCOLS, Algorithm, Cpu, Generation, Protocol

Hops: TypeAlias = Mapping[Protocol, Mapping[Algorithm, float]]
Caps: TypeAlias = Mapping[Generation, tuple[float, float, float]]


def _hops(**rows: tuple[float, ...]) -> Hops:
    """Return each protocol's row, in the order of `ALGORITHMS`, by algorithm."""
    return {protocol: dict(zip(ALGORITHMS, rows[protocol], strict=False)) for protocol in PROTOCOLS}


def _caps(*rows: tuple[float, float, float]) -> Caps:
    """Return the rows of a table by generation; they are given in the order from Volta to Blackwell."""
    return dict(zip(get_args(Generation), rows, strict=True))


# Tree, ring, CollNetDirect, CollNetChain; of Simple also NVLS, NVLSTree, PAT.
BASE_US = _hops(
    LL=(6.8, 6.6, 0.0, 0.0),
    LL128=(14.0, 14.0, 0.0, 0.0),
    Simple=(8.4, 8.4, 0.0, 0.0, 0.0, 0.0, 8.0),
)
NVLINK_HOP_US = _hops(
    LL=(0.6, 0.6, 0.0, 0.0),
    LL128=(1.25, 1.9, 0.0, 0.0),
    Simple=(4.0, 3.4, 3.7, 2.8, 25.0, 25.0),
)
PCI_HOP_US = _hops(
    LL=(1.0, 1.0, 0.0, 0.0),
    LL128=(1.9, 2.5, 0.0, 0.0),
    Simple=(4.0, 5.7, 3.7, 2.8, 0.0, 0.0),
)
# With one GPU per node all algorithms use the tree's; PAT runs only there.
NET_HOP_US = _hops(
    LL=(5.0, 2.7, 0.0, 0.0),
    LL128=(8.5, 4.0, 0.0, 0.0),
    Simple=(14.0, 14.0, 31.0, 30.0, 18.0, 20.9),
)
NETWORK_OVERHEAD_US: Mapping[Cpu, float] = {"intel": 1.0, "amd": 2.0, "arm": 1.0}
SIMPLE_OVERHEADS = 3
COLLNET_ARITY_US = 0.4
PAT_RANK_US = 2.8
PAT_HOPS_AT_ONCE = 3.5

LL_GB_PER_S = _caps((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
# Row for several nodes, where NCCL looks at the CPUs instead of the GPUs.
LL_ROW_BY_CPU: Mapping[Cpu, Generation] = {"intel": "Volta", "amd": "Ampere", "arm": "Ampere"}
RING_LL128_CHANNEL_GB_PER_S = _caps((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0))
TREE_LL128_CHANNEL_GB_PER_S = _caps((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0))
TREE_CHANNEL_GB_PER_S = _caps((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0))
# 0 on one node, where NCCL uses NVLS.
NVLS_TREE_CHANNEL_GB_PER_S: Caps = {"Hopper": (0.0, 57.7, 45.5), "Blackwell": (0.0, 96.0, 80.0)}

# Shares of the bus bandwidth.
RING_LL = 1 / 2
RING_LL128 = 0.92
TREE = 0.92
TREE_LL = 1 / 3.8
TREE_LL128_ONE_NODE = 7 / 9
TREE_LL128 = 15 / 16
PLAIN_TREE = 0.85
NVLS: Mapping[Generation, float] = {"Hopper": 0.85, "Blackwell": 0.74}
COLLNET_DIRECT_SINCE_HOPPER = 0.85
COLLNET_DIRECT_NIC = 0.9
PAT = 0.75

# Factor on the latency of a ring's Simple all-reduce over several nodes, from FULL_RING_BYTES per channel and rank on.
FULL_RING_BYTES = 64
FULL_RING: Mapping[Generation, float] = {"Volta": 1.9, "Ampere": 1.4, "Hopper": 1.4, "Blackwell": 1.4}

# Share of a tree's bandwidth that is left at a size, by log2(bytes / 64); NVLS's trees have one at one size more.
TREE_SIZES: Mapping[Protocol, tuple[float, ...]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1),
    "Simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
}
NVLS_TREE_SIZES: tuple[float, ...] = (*TREE_SIZES["Simple"], 0.9)

# Operations of one launch that share a latency, but for rings.
OPERATIONS_A_BATCH = 8
