"""What NCCL 2.30 predicts that an operation takes on an idle cluster, and its choice.

Pure arithmetic of a `Topology`, in doubles: the results are those of NCCL's 32-bit floats but for their rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from sim.nccl.model import tables
from sim.nccl.model.cost import gb_per_s, latency_us
from sim.nccl.model.topology import ALGORITHMS, PROTOCOLS, Algorithm, Function, Protocol, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is asked for: `size_bytes` is the larger of a rank's buffers; `together`, how many such are launched."""

    function: Function
    size_bytes: int
    together: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What NCCL would do, and what it thinks that takes: latency plus `transfer_ns` for the bytes."""

    algorithm: Algorithm
    protocol: Protocol
    latency_ns: float
    transfer_ns: float

    @property
    def total_ns(self) -> float:
        """NCCL's own prediction."""
        return self.latency_ns + self.transfer_ns


def choices(topology: Topology, operation: Operation) -> Iterator[Choice]:
    """Every way that is enabled, in NCCL's order."""
    for algorithm, protocol in product(ALGORITHMS, PROTOCOLS):
        rate = gb_per_s(topology, operation.function, algorithm, protocol)
        if rate > 0:
            one_us = latency_us(topology, operation.function, algorithm, protocol)
            yield Choice(
                algorithm=algorithm,
                protocol=protocol,
                latency_ns=1e3 * one_us * _latencies(topology, operation, algorithm, protocol),
                transfer_ns=operation.size_bytes / (rate * _size_share(topology, operation, algorithm, protocol)),
            )


def choose(topology: Topology, operation: Operation) -> Choice:
    """The quickest; the first of equals."""
    return min(choices(topology, operation), key=lambda choice: choice.total_ns)


def _latencies(topology: Topology, operation: Operation, algorithm: Algorithm, protocol: Protocol) -> float:
    """How often the latency counts: for a ring once an operation, more where it is full, else once a batch."""
    if algorithm != "ring":
        return -(-operation.together // tables.OPERATIONS_A_BATCH)
    full_bytes = tables.FULL_RING_BYTES * topology.channels * topology.ranks
    full = protocol == "Simple" and topology.nodes > 1 and operation.size_bytes >= full_bytes
    if full and operation.function == "all_reduce":
        return operation.together * tables.FULL_RING[topology.generation]
    return operation.together


def _size_share(topology: Topology, operation: Operation, algorithm: Algorithm, protocol: Protocol) -> float:
    """Trees do not reach their bandwidth at every size; NVLS's only since Blackwell."""
    corrected = algorithm == "tree" or (algorithm == "nvls_tree" and topology.generation == "Blackwell")
    place = (operation.size_bytes >> 6).bit_length() - 1
    shares = tables.TREE_SIZES[protocol]
    return shares[place] if corrected and 0 <= place < len(shares) else 1.0
