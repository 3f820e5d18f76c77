"""The time of a collective among GPUs of one host on idle links: a law of steps, fitted to measured times.

NCCL's own tables choose algorithm and protocol; measured times differ from them by 8 to 30 %. In this law a collective
takes a start, a hop for each step of its ring, and the time of its bytes. The forms hold on every GPU; figures are
those of the generation's NVLinks, and of PCI Express. They are fitted to nccl-tests on 2 and 8 GPUs of one A100, H100
and B200 host (tests/data/published/one_host.csv; docs/explanation/collectives.md says how well, also on a GPU
that was left out).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from scenarios.seam.traits import CHAINS, Function
from sim.nccl.model.predictor import TunedCollective
from sim.nccl.model.topology import Generation, Protocol, ring_steps

# Payload over bytes on a link: LL 4 bytes of 8 (the rest is a flag), LL128 120 of 128.
PAYLOAD_SHARES: Mapping[Protocol, float] = {"LL": 0.5, "LL128": 120 / 128, "Simple": 1.0}

# Steps and bytes of a step overlap in part: the length of a step is this norm of the hop and of its bytes' time.
_NORM = 1.6
# Above the first size a chunk uses more blocks, all of them at the second: bytes of one rank's chunk.
_FEW_BLOCKS_BYTES, _ALL_BLOCKS_BYTES = 1 << 10, 16 << 10
_FEW_PEER_BYTES, _ALL_PEER_BYTES = 4 << 10, 256 << 10
# Pipelines fill in proportion to the square root of the bytes, up to this size: of a buffer, of a message.
_FILLED_BYTES, _FILLED_MESSAGE_BYTES = 256 << 20, 64 << 20
# The switch's pipeline is full with the bytes of this many microseconds of a GPU's link, and fills by this power.
_NVLS_FILLED_US, _NVLS_FILLING = 68.0, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class LowLatency:
    """A protocol of words with flags (LL, LL128): a start, hops, and the payload rate of one GPU's blocks.

    `blocks_us` and `wide_hop_us` are added where all blocks work.
    """

    start_us: float
    hop_us: float
    gb_per_s: float
    blocks_us: float = 0.0
    wide_hop_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """A protocol of large chunks: Simple has a start, hops, the longest fill of its pipeline, and a channel's rate of
    copying a rank's own part.

    NVLS has these too, but copies nothing; `share` is its rate over NCCL's own figure.
    """

    start_us: float
    hop_us: float = 0.0
    fill_us: float = 0.0
    copy_gb_per_s: float = math.inf
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """The figures of one kind of link; `sends` is point-to-point with a hop per peer, `sends_blocks_us` its blocks."""

    ll: LowLatency
    ll128: LowLatency
    simple: Bulk
    nvls: Bulk
    sends: Bulk
    sends_blocks_us: float


_AMPERE = Law(
    ll=LowLatency(start_us=7.0, hop_us=0.96, gb_per_s=104.0, blocks_us=2.2, wide_hop_us=0.43),
    ll128=LowLatency(start_us=30.6, hop_us=1.0, gb_per_s=162.0),
    simple=Bulk(start_us=26.1, hop_us=4.5, fill_us=37.0, copy_gb_per_s=23.5),
    nvls=Bulk(start_us=21.3, fill_us=51.0),
    sends=Bulk(start_us=10.0, hop_us=0.53, fill_us=84.0, copy_gb_per_s=57.0),
    sends_blocks_us=2.2,
)
_LAWS: Mapping[Generation, Law] = {
    "Volta": _AMPERE,
    "Ampere": _AMPERE,
    "Hopper": Law(
        ll=LowLatency(start_us=3.8, hop_us=0.85, gb_per_s=174.0, blocks_us=0.72, wide_hop_us=0.19),
        ll128=LowLatency(start_us=15.9, hop_us=1.18, gb_per_s=332.0),
        simple=Bulk(start_us=13.1, hop_us=0.72, fill_us=36.0, copy_gb_per_s=41.5),
        nvls=Bulk(start_us=21.3, fill_us=51.0, share=0.98),
        sends=Bulk(start_us=6.2, hop_us=0.36, fill_us=24.0, copy_gb_per_s=154.0),
        sends_blocks_us=4.7,
    ),
    "Blackwell": Law(
        ll=LowLatency(start_us=5.7, hop_us=1.39, gb_per_s=261.0, blocks_us=1.05, wide_hop_us=0.08),
        ll128=LowLatency(start_us=13.0, hop_us=1.2, gb_per_s=470.0),
        simple=Bulk(start_us=14.7, hop_us=4.9, copy_gb_per_s=33.6),
        nvls=Bulk(start_us=29.9, fill_us=80.0, share=1.06),
        sends=Bulk(start_us=8.7, hop_us=0.36, fill_us=23.0, copy_gb_per_s=22.7),
        sends_blocks_us=4.7,
    ),
}

# Over PCI Express, read off all-reduces on two hosts of 8 GPUs: RTX 5090 (nccl-tests with NCCL 2.29.7: 25 us up to 2
# KiB, 41 at 64 KiB, 57 at 512 KiB, 75 at 1 MiB, 45 GB/s of bus bandwidth from 8 MiB on) and RTX PRO 6000 behind
# switches (24 us up to 64 KiB: voipmonitor/rtx6kpro, hardware/pcie-bandwidth.md). Sends are an A100's with twice the
# hop: not measured.
_PCIE = replace(
    _AMPERE,
    ll=LowLatency(start_us=6.0, hop_us=1.24, gb_per_s=104.0, blocks_us=1.5, wide_hop_us=0.3),
    simple=Bulk(start_us=18.0, hop_us=1.15),
    sends=replace(_AMPERE.sends, hop_us=1.0),
)
# Extra time per additional peer where every GPU sends to each other over PCI Express: 8 RTX PRO 6000 reach 0.43 of a
# pair's rate, 4 reach 0.6, rings of 8 reach 0.76 (in that file).
PCIE_PEER = 1 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OneHostGroup:
    """A group of ranks on one host, with the payload rate of a GPU's link in GB/s, and the number of its channels.

    `start_share`: this machine's start over the law's.
    """

    ranks: int
    link_gb_per_s: float
    channels: int
    generation: Generation
    nvlink: bool
    start_share: float = 1.0

    @property
    def law(self) -> Law:
        """Figures of the group's links."""
        return _LAWS[self.generation] if self.nvlink else _PCIE


@dataclass(frozen=True, slots=True)
class OneHostTime:
    """The microseconds before the first byte, and those in which bytes move."""

    latency_us: float
    transfer_us: float


def low_latency_ring(operation: TunedCollective, group: OneHostGroup, protocol: Protocol) -> OneHostTime:
    """Return the time of a ring by LL or LL128."""
    figures = group.law.ll if protocol == "LL" else group.law.ll128
    bytes_per_us = 1e3 * min(figures.gb_per_s, PAYLOAD_SHARES[protocol] * group.link_gb_per_s)
    chunk_bytes = operation.size_bytes / group.ranks / operation.together
    blocks = _ramp(chunk_bytes, _FEW_BLOCKS_BYTES, _ALL_BLOCKS_BYTES)
    hop_us = figures.hop_us + blocks * figures.wide_hop_us
    hops = operation.together * _turns(operation.function, group.ranks)
    if operation.function in CHAINS:  # chunks follow each other
        transfer_us = operation.size_bytes / bytes_per_us
    else:
        chunk_us = chunk_bytes / bytes_per_us
        # Less the hop, which is in the latency: with no bytes the transfer takes nothing.
        transfer_us = hops * ((hop_us**_NORM + chunk_us**_NORM) ** (1 / _NORM) - hop_us)
    start_us = group.start_share * (figures.start_us + blocks * figures.blocks_us)
    return OneHostTime(start_us + hops * hop_us, transfer_us)


def simple_ring(operation: TunedCollective, group: OneHostGroup) -> OneHostTime:
    """Return the time of a ring by Simple."""
    figures, steps = group.law.simple, ring_steps(operation.function, group.ranks)
    filled = math.sqrt(min(1.0, operation.size_bytes / _FILLED_BYTES))
    own_bytes = operation.size_bytes / group.ranks
    transfer_us = own_bytes * steps / (1e3 * group.link_gb_per_s)
    if operation.function not in CHAINS:
        transfer_us += own_bytes / (1e3 * figures.copy_gb_per_s * group.channels)
    hops_us = operation.together * steps * figures.hop_us
    return OneHostTime(group.start_share * figures.start_us + hops_us + filled * figures.fill_us, transfer_us)


def nvls(size_bytes: float, counted_us: float, group: OneHostGroup) -> OneHostTime:
    """Return the time of a collective by the switch; `counted_us` is NCCL's own figure for its bytes."""
    figures = group.law.nvls
    filled = min(1.0, size_bytes / (1e3 * group.link_gb_per_s * _NVLS_FILLED_US)) ** _NVLS_FILLING
    return OneHostTime(group.start_share * figures.start_us + filled * figures.fill_us, counted_us / figures.share)


def tree(protocol: Protocol, counted_us: float, group: OneHostGroup) -> OneHostTime:
    """Return the time of a chain of GPUs up and down, which was not measured; `counted_us` as in `nvls`."""
    law, hops = group.law, 2 * (group.ranks - 1)
    if protocol == "Simple":
        return OneHostTime(group.start_share * law.simple.start_us + hops * law.simple.hop_us, counted_us)
    figures = law.ll if protocol == "LL" else law.ll128
    return OneHostTime(group.start_share * (figures.start_us + figures.blocks_us) + hops * figures.hop_us, counted_us)


def sends_us(largest_bytes: float, own_bytes: float, peers: int, group: OneHostGroup) -> float:
    """Return the time of grouped sends in us, without that of the bytes on links.

    Args:
        largest_bytes: the largest message.
        own_bytes: bytes that a rank copies for itself, by the channels that send.
        peers: number of peers of the busiest rank.
        group: the ranks.
    """
    law, figures = group.law, group.law.sends
    blocks = _ramp(largest_bytes, _FEW_PEER_BYTES, _ALL_PEER_BYTES)
    filled = math.sqrt(min(1.0, largest_bytes / _FILLED_MESSAGE_BYTES))
    copy_us = own_bytes / (1e3 * figures.copy_gb_per_s * group.channels)
    start_us = group.start_share * (figures.start_us + blocks * law.sends_blocks_us)
    return start_us + peers * figures.hop_us + filled * figures.fill_us + copy_us


def _turns(function: Function, ranks: int) -> int:
    """Return how often a rank handles a chunk: once a step, and once more at the end of the ring."""
    return ring_steps(function, ranks) + (function not in CHAINS)


def _ramp(size_bytes: float, first_bytes: int, last_bytes: int) -> float:
    """Return the position of a size between two others, 0 to 1, in doublings."""
    if size_bytes <= first_bytes:
        return 0.0
    return min(1.0, math.log2(size_bytes / first_bytes) / math.log2(last_bytes / first_bytes))
