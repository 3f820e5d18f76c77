"""Kinds of networks between hosts: what a scenario must know of each; `sim.engine.network` has their paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NetworkKind = Literal["non_blocking", "leaf_spine", "rail_only"]


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """What the checks of a scenario go by.

    Attributes:
        summary: what it is, in the reference of keys.
        has_leaves: whether groups of hosts share uplinks, so that it has `hosts_per_leaf` and `oversubscription`.
        by_rail: whether a NIC reaches only those of its number: then there is a NIC per GPU, and NVLink to reach it.
    """

    summary: str
    has_leaves: bool = False
    by_rail: bool = False


NETWORKS: dict[NetworkKind, NetworkFacts] = {
    "non_blocking": NetworkFacts("one ideal switch"),
    "leaf_spine": NetworkFacts("uplinks may be too narrow", has_leaves=True),
    "rail_only": NetworkFacts(
        "a switch for NIC j of all hosts and nothing between these, so that NVLink takes bytes to the NIC", by_rail=True
    ),
}
DEFAULT_NETWORK: NetworkKind = "non_blocking"
WITH_LEAVES = " or ".join(f"'{kind}'" for kind, facts in NETWORKS.items() if facts.has_leaves)
SUMMARIES = "; ".join(f"'{kind}': {facts.summary}" for kind, facts in NETWORKS.items())
