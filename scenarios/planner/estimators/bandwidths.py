"""Bandwidths that the planner's formulas take for each collective; what the simulator makes of a link is not here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

GIB = 1024**3

# TorchRec 1.8's defaults, in bytes/ms.
INTRA_NODE_BANDWIDTH = 600 * GIB / 1000
CROSS_NODE_BANDWIDTH = 12.5 * GIB / 1000


class CollectiveType(StrEnum):
    """What the ranks do together."""

    ALL_TO_ALL = "all_to_all"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_REDUCE = "all_reduce"


class GeneralizedCommsBandwidth(Protocol):
    """Bytes/ms of one rank, by collective: what a user measured may stand for the two figures of the basic one."""

    @property
    def inter_host_bw(self) -> float: ...
    @property
    def intra_host_bw(self) -> float: ...
    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        """Of a collective of `world_size` ranks, `local_world_size` to a host."""
        ...


@dataclass(frozen=True, slots=True)
class BasicCommsBandwidths:
    """One figure inside a host and one between hosts; an all-reduce uses all of a host's ways out."""

    inter_host_bw: float = CROSS_NODE_BANDWIDTH
    intra_host_bw: float = INTRA_NODE_BANDWIDTH

    def get_bw(self, local_world_size: int, world_size: int, collective_type: CollectiveType) -> float:
        """Bytes/ms of one rank."""
        if collective_type == CollectiveType.ALL_REDUCE:
            return self.inter_host_bw * local_world_size
        return self.inter_host_bw if world_size > local_world_size else self.intra_host_bw
