"""The load of a ring or tree on hosts: the largest on any host, and the share of each host class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sim.engine.flow_bundle import Array
from sim.nccl import plan as nccl
from sim.nccl import rings_and_trees as nccl_paths

TREES = ("tree", "nvls_tree")


class TransferLoad(NamedTuple):
    """The bytes of some transfers together, and their number."""

    size_bytes: float = 0.0
    transfers: float = 0.0


@dataclass(frozen=True, slots=True)
class PipelineLoads:
    """The largest load of a pipeline on any host: between GPUs (source, target, relay), out of each GPU and into each.

    `relayed`: from a GPU to the GPU of its host whose NIC sends the bytes.
    """

    inside: dict[tuple[int, int, int | None], TransferLoad]
    leaving: dict[int, TransferLoad]
    arriving: dict[int, TransferLoad]
    relayed: dict[tuple[int, int], TransferLoad]

    @staticmethod
    def of(phase: nccl.Phase, gpus: Sequence[int]) -> PipelineLoads:
        """Return the largest loads of a phase; `gpus` are a host's GPU numbers in the order of its group ranks."""
        each: dict[tuple[str, Any], dict[int, TransferLoad]] = {}

        def add(kind: str, place: Any, host: int, size_bytes: float) -> None:
            loads = each.setdefault((kind, place), {})
            before = loads.get(host, TransferLoad())
            loads[host] = TransferLoad(before.size_bytes + size_bytes, before.transfers + 1)

        for source, target, size_bytes in phase.transfers:
            (here, near), (there, far) = divmod(source, len(gpus)), divmod(target, len(gpus))
            via = phase.relays.get((source, target))
            relay = None if via is None else gpus[via % len(gpus)]
            if here == there:
                add("inside", (gpus[near], gpus[far], relay), here, size_bytes)
                continue
            exit_gpu = gpus[near] if relay is None else relay
            if exit_gpu != gpus[near]:
                add("relayed", (gpus[near], exit_gpu), here, size_bytes)
            add("leaving", exit_gpu, here, size_bytes)
            add("arriving", gpus[far], there, size_bytes)
        # By place, over hosts: each maximum may be another host's, as all hosts wait for whichever is slowest.
        most = {key: max(loads.values()) for key, loads in each.items()}
        return PipelineLoads(
            *({place: most[kind, place] for kind, place in most if kind == name} for name in PipelineLoads.__slots__)
        )

    @property
    def of_host(self) -> TransferLoad:
        """The load that leaves a whole host; as much enters it."""
        return TransferLoad(*map(sum, zip(*self.leaving.values(), strict=True))) if self.leaving else TransferLoad()


def largest_across(phase: nccl.Phase, local: Sequence[int]) -> float:
    """Return the bytes of the largest transfer between hosts of `local` ranks each."""
    across = (size for source, target, size in phase.transfers if source // len(local) != target // len(local))
    return max(across, default=0.0)


def shares(algorithm: str, kinds: Array, counts: Array, *, towards_owner: bool) -> Array:
    """Return [kinds, kinds] bytes from one host of each kind to all of each kind, over those from the busiest host.

    Args:
        algorithm: NCCL's algorithm.
        kinds: [hosts] kind of each host, in the order of the group.
        counts: [kinds] number of hosts.
        towards_owner: as in `nccl_paths.pat_loads`.
    """
    sent = np.zeros((len(counts), len(counts)))
    for sources, targets, share in _edges(algorithm, len(kinds)):
        ends = kinds[sources], kinds[targets]
        np.add.at(sent, ends[::-1] if towards_owner and algorithm == "pat" else ends, share)
    return np.asarray(sent / counts[:, None])


def _edges(algorithm: str, hosts: int) -> Iterator[tuple[Array, Array, float]]:
    """Yield source hosts, their targets, and the share of the buffer on each such edge."""
    every = np.arange(hosts)
    if algorithm in TREES:
        for child, parent in edges(hosts):
            share = 1 / float(degrees_of(hosts).max())
            yield child, parent, share
            yield parent, child, share
    elif algorithm == "pat":  # a rank on each host, at distances of powers of two
        distances = [1 << power for power in range((hosts - 1).bit_length())]
        for distance in distances:
            yield every, (every + distance) % hosts, min(distance, hosts - distance) / (hosts - 1)
    else:
        yield every, (every + 1) % hosts, 1.0


@lru_cache(maxsize=64)
def degrees_of(hosts: int) -> Array:
    """Return the number of edges of both trees at each host."""
    degrees = np.zeros(hosts)
    for ends in edges(hosts):
        np.add.at(degrees, np.concatenate(ends), 1)
    return degrees


def edges(hosts: int) -> Iterator[tuple[Array, Array]]:
    """Yield the children and their parents in each tree."""
    for parents in map(np.array, nccl_paths.trees(hosts)):
        child = np.flatnonzero(parents >= 0)
        yield child, parents[child]
