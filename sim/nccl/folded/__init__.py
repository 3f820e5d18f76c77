"""NCCL's collectives among members that stand for several ranks each, as loads on the links of those that are played.

Links of a host that is played carry what those of each host carry that it stands for; uplinks carry the whole. What is
sent is left to `collectives`, which hosts are alike to `scenarios.config.host_classes`.
"""

from sim.nccl.folded.collectives import FoldedNccl
from sim.nccl.folded.leaf_uplinks import uplink_counts
from sim.nccl.folded.link_load import Carried

__all__ = ["FoldedNccl", "Carried", "uplink_counts"]
