"""The GPU memory of NCCL's communicators: buffers for each channel and peer that they have connected.

Sizes are NCCL's defaults (src/init.cc, src/include/device.h): Simple has NCCL_BUFFSIZE, 4 MiB; LL 512 threads of 8
lines of 16 B in 8 steps, 512 KiB; LL128 640 threads of 120 elements of 8 B in 8 steps, 4,800 KiB. CUDA maps pages of 2
MiB: the allocations of 10,485,760 and 2,097,152 bytes that NCCL logs for channels and peers (NCCL issue 1685).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from scenarios.seam.group import Group
from sim.engine.network import ClusterNetwork

_RECEIVER_BYTES, _SENDER_BYTES = 10 << 20, 2 << 20

# Point to point over the network all peers share one buffer for each channel and direction: NCCL_SHARED_STEPS (16) of
# NCCL_P2P_NET_CHUNKSIZE, 128 KiB (src/transport/net.cc).
_SHARED_BYTES = 2 << 20
_MOST_P2P_CHANNELS = 32


@dataclass(slots=True)
class Connections:
    """The connections of one communicator: its rings, or all peers for exchanges; NCCL connects each at first use."""

    group: Group
    channels: int
    rings: bool = False
    peers: bool = False

    def note(self, *, exchanges: bool) -> None:
        """Record a collective of the group; `exchanges`: it needs all peers, not rings."""
        self.peers |= exchanges
        self.rings |= not exchanges

    def bytes_of(self, rank: int, network: ClusterNetwork) -> int:
        """Return the buffers' bytes on a rank of the group."""
        total = self.channels * (_RECEIVER_BYTES + _SENDER_BYTES) if self.rings else 0
        if not self.peers:
            return total
        near = sum(network.domain(other) == network.domain(rank) for other in self.group.ranks) - 1
        # NCCL rounds point-to-point channels up to a power of two.
        channels = min(1 << (self.channels - 1).bit_length(), _MOST_P2P_CHANNELS)
        far = 2 * _SHARED_BYTES if self.group.size > near + 1 else 0
        return total + channels * (near * (_RECEIVER_BYTES + _SENDER_BYTES) + far)


def buffer_bytes(connected: Mapping[str, Connections], network: ClusterNetwork) -> dict[int, int]:
    """Return the bytes of all communicators' buffers, by rank."""
    total = Counter[int]()
    for one in connected.values():
        for rank in one.group.ranks:
            total[rank] += one.bytes_of(rank, network)
    return dict(total)
