"""The constants of NCCL 2.30.7-1's tuning model; what is done with them is left to its other modules.

Microseconds and GB/s; rows of three are one node, two, more. All but CollNet's are NCCL's own figures as published.
CollNet's follow from the golden record of NCCL's results; it fixes 2 x 3.7 + 31, the sum of CollNetDirect's Simple
hops, and not its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from sim.nccl.model.topology import Algorithm, Cpu, Generation, Protocol

Hops: TypeAlias = Mapping[Protocol, Mapping[Algorithm, float]]
Caps: TypeAlias = Mapping[Generation, tuple[float, float, float]]

BASE_US: Hops = {
    "LL": {"tree": 6.8, "ring": 6.6, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "LL128": {"tree": 14.0, "ring": 14.0, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "Simple": {
        "tree": 8.4,
        "ring": 8.4,
        "collnet_direct": 0.0,
        "collnet_chain": 0.0,
        "nvls": 0.0,
        "nvls_tree": 0.0,
        "pat": 8.0,
    },
}
NVLINK_HOP_US: Hops = {
    "LL": {"tree": 0.6, "ring": 0.6, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "LL128": {"tree": 1.25, "ring": 1.9, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "Simple": {
        "tree": 4.0,
        "ring": 3.4,
        "collnet_direct": 3.7,
        "collnet_chain": 2.8,
        "nvls": 25.0,
        "nvls_tree": 25.0,
    },
}
PCI_HOP_US: Hops = {
    "LL": {"tree": 1.0, "ring": 1.0, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "LL128": {"tree": 1.9, "ring": 2.5, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "Simple": {
        "tree": 4.0,
        "ring": 5.7,
        "collnet_direct": 3.7,
        "collnet_chain": 2.8,
        "nvls": 0.0,
        "nvls_tree": 0.0,
    },
}
# With one GPU a node all take the tree's; PAT is for nothing else.
NET_HOP_US: Hops = {
    "LL": {"tree": 5.0, "ring": 2.7, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "LL128": {"tree": 8.5, "ring": 4.0, "collnet_direct": 0.0, "collnet_chain": 0.0},
    "Simple": {
        "tree": 14.0,
        "ring": 14.0,
        "collnet_direct": 31.0,
        "collnet_chain": 30.0,
        "nvls": 18.0,
        "nvls_tree": 20.9,
    },
}
NETWORK_OVERHEAD_US: Mapping[Cpu, float] = {"intel": 1.0, "amd": 2.0, "arm": 1.0}
SIMPLE_OVERHEADS = 3
COLLNET_ARITY_US = 0.4
PAT_RANK_US = 2.8
PAT_HOPS_AT_ONCE = 3.5

LL_GB_PER_S: Caps = {
    "Volta": (39.0, 39.0, 20.4),
    "Ampere": (87.7, 22.5, 19.0),
    "Hopper": (141.0, 45.0, 35.0),
    "Blackwell": (282.0, 90.0, 70.0),
}
# Several nodes: the processors count, not the GPUs.
LL_ROW_BY_CPU: Mapping[Cpu, Generation] = {"intel": "Volta", "amd": "Ampere", "arm": "Ampere"}
RING_LL128_CHANNEL_GB_PER_S: Caps = {
    "Volta": (20.0, 20.0, 20.0),
    "Ampere": (20.0, 20.0, 20.0),
    "Hopper": (36.7, 36.7, 36.7),
    "Blackwell": (40.0, 40.0, 40.0),
}
TREE_LL128_CHANNEL_GB_PER_S: Caps = {
    "Volta": (20.0, 20.0, 20.0),
    "Ampere": (20.0, 20.0, 20.0),
    "Hopper": (36.7, 36.7, 29.0),
    "Blackwell": (55.6, 31.67, 20.0),
}
TREE_CHANNEL_GB_PER_S: Caps = {
    "Volta": (26.5, 18.5, 10.0),
    "Ampere": (24.0, 23.6, 17.8),
    "Hopper": (38.7, 41.4, 36.0),
    "Blackwell": (70.0, 42.8, 24.0),
}
# None on one node: there it is NVLS.
NVLS_TREE_CHANNEL_GB_PER_S: Caps = {
    "Hopper": (0.0, 57.7, 45.5),
    "Blackwell": (0.0, 96.0, 80.0),
}

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
PAT = 0.75

# Factor on the latency of a ring's Simple all-reduce over several nodes, from so many bytes a channel and rank on.
FULL_RING_BYTES = 64
FULL_RING: Mapping[Generation, float] = {"Volta": 1.9, "Ampere": 1.4, "Hopper": 1.4, "Blackwell": 1.4}

# Share of a tree's bandwidth that is left at a size, by log2(bytes / 64).
TREE_SIZES: Mapping[Protocol, tuple[float, ...]] = {
    "LL": (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    "LL128": (1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, *(0.6,) * 6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    "Simple": (*(0.9,) * 7, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
}

# So many operations of one launch share a latency, but for rings.
OPERATIONS_A_BATCH = 8
