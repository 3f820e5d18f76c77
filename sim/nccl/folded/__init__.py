"""NCCL's collectives on a folded cluster, as loads on the links of representative hosts.

Each link of a representative carries as much as that link of any host of its class; uplinks carry all traffic.
"""

from sim.nccl.folded.collectives import FoldedNccl
from sim.nccl.folded.leaf_uplinks import Leaves
from sim.nccl.folded.link_load import Carried

__all__ = ["FoldedNccl", "Carried", "Leaves"]
