"""NCCL's collectives among members that stand for several ranks each, as loads on the links of those that are played.

Links of a host that is played carry what those of each host carry that it stands for; uplinks carry the whole. What is
sent is left to `collectives`, which hosts are alike to `scenarios.alike`.
"""

from sim.alike.carried import Carried
from sim.alike.leafs import uplink_counts
from sim.alike.nccl import AlikeNccl

__all__ = ["AlikeNccl", "Carried", "uplink_counts"]
