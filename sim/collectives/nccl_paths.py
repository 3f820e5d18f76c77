"""Which GPUs exchange how much of a buffer in NCCL's rings, chains and trees; times and protocols are left to `nccl`.

Every load is a mapping from (source, destination) group ranks to the share of the buffer that crosses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from sim.collectives.nccl_tuning import NcclCosts, Shape

Loads: TypeAlias = dict[tuple[int, int], float]


def members_by_host(layout: Sequence[int]) -> list[list[int]]:
    """The group ranks of each host, hosts in the order in which the group meets them."""
    hosts: dict[int, list[int]] = {}
    for rank, host in enumerate(layout):
        hosts.setdefault(host, []).append(rank)
    return list(hosts.values())


def shape_of(members: Sequence[Sequence[int]], costs: NcclCosts) -> Shape:
    """The group's size on this cluster; as many rails as its emptiest host can feed."""
    nics = costs.nics_per_host or costs.ranks_per_host
    rails = min(nics, *map(len, members), costs.ranks_per_host) if len(members) > 1 else 1
    return Shape(ranks=sum(map(len, members)), hosts=len(members), rails=rails)


def rings(members: Sequence[Sequence[int]], rails: int) -> list[list[int]]:
    """One ring a rail, through the hosts in order; inside a host it starts at the GPU of its rail.

    So it enters by that GPU's NIC and leaves by its predecessor's: each NIC has one ring in and one out.
    """
    return [[rank for host in members for rank in _rotated(host, rail)] for rail in range(rails)]


def ring_loads(members: Sequence[Sequence[int]], rails: int, edge_share: float) -> Loads:
    """Every edge of every ring carries `edge_share` of the ring's part of the buffer."""
    loads: Loads = {}
    for ring in rings(members, rails):
        _add(loads, zip(ring, ring[1:] + ring[:1], strict=True), edge_share / rails)
    return loads


def chain_loads(members: Sequence[Sequence[int]], rails: int, root: int, towards_root: bool) -> Loads:
    """The rings cut before `root`: the whole buffer goes once to every other rank, or from them to the root."""
    loads: Loads = {}
    for ring in rings(members, rails):
        chain = _rotated(ring, ring.index(root))
        if towards_root:  # the same ring, cut behind the root
            chain = _rotated(chain, 1)
        _add(loads, pairwise(chain), 1 / rails)
    return loads


def tree_loads(members: Sequence[Sequence[int]], rails: int) -> Loads:
    """Two binary trees over the hosts on every rail, a chain inside each host; sums go up and results come down.

    A host that is inside one tree is, as far as numbers allow, a leaf of the other: each carries half of the buffer.
    """
    loads: Loads = {}
    hosts = len(members)
    trees = [tree_parents(hosts), _other_tree(hosts)] if hosts > 1 else [[-1]]
    share = 1 / (rails * len(trees))
    for rail in range(rails):
        chains = [_rotated(host, rail) for host in members]
        for parents in trees:
            up = [(chains[host][0], chains[parent][0]) for host, parent in enumerate(parents) if parent >= 0]
            up += [(far, near) for chain in chains for near, far in pairwise(chain)]
            _add(loads, up, share)
            _add(loads, [(near, far) for far, near in up], share)
    return loads


def nvls_loads(members: Sequence[Sequence[int]], rails: int) -> Loads:
    """Through the switch of a host every GPU gives its buffer and gets the result; between hosts two trees a rail.

    A GPU has one link to the switch each way: on them that is as if each gave its buffer to the next.
    """
    loads: Loads = {}
    for host in members:
        if len(host) > 1:
            _add(loads, zip(host, [*host[1:], host[0]], strict=True), 1.0)
    if len(members) > 1:
        for rail in range(rails):
            for edge, share in tree_loads([[host[rail]] for host in members], 1).items():
                _add(loads, [edge], share / rails)
    return loads


def pat_loads(members: Sequence[Sequence[int]], *, towards_owner: bool) -> Loads:
    """Between ranks at distances of powers of two, over each of which go as many ranks' parts as are new."""
    ranks = [rank for host in members for rank in host]
    loads: Loads = {}
    distance = 1
    while distance < len(ranks):
        ahead = [*ranks[distance:], *ranks[:distance]]
        edges = zip(ahead, ranks, strict=True) if towards_owner else zip(ranks, ahead, strict=True)
        _add(loads, edges, min(distance, len(ranks) - distance) / len(ranks))
        distance *= 2
    return loads


def tree_parents(size: int) -> list[int]:
    """Parents in a balanced in-order binary tree of 0 .. size-1: 0 is the root (its parent -1), odd ones are leaves."""
    parents = [-1]
    for node in range(1, size):
        step = node & -node
        parent = (node - step) | 2 * step
        parents.append(parent if parent < size else node - step)
    return parents


def idle_seconds(loads: Mapping[tuple[int, int], float], members: Sequence[Sequence[int]], costs: NcclCosts) -> float:
    """Time that the most loaded GPU link or NIC needs for one byte of buffer, were nothing else on the cluster."""
    place = {rank: (host, i) for host, ranks in enumerate(members) for i, rank in enumerate(ranks)}
    nics = costs.nics_per_host or costs.ranks_per_host
    network_bytes_per_s = costs.inter_bytes_per_s * costs.payload_share
    busy: dict[tuple[str, int, int], float] = {}
    for (source, target), share in loads.items():
        (here, i), (there, j) = place[source], place[target]
        ends = (("gpu out", here, i), ("gpu in", there, j))
        rate = costs.intra_bytes_per_s
        if here != there:
            ends, rate = (("nic out", here, i % nics), ("nic in", there, j % nics)), network_bytes_per_s
        for end in ends:
            busy[end] = busy.get(end, 0.0) + share / rate
    return max(busy.values(), default=0.0)


def _other_tree(size: int) -> list[int]:
    """The first tree mirrored, or shifted by one where mirroring would leave the leaves what they are."""
    first = tree_parents(size)
    if size % 2 == 0:
        return [size - 1 - parent if parent >= 0 else -1 for parent in reversed(first)]
    shifted = [(parent + 1) % size if parent >= 0 else -1 for parent in first]
    return _rotated(shifted, -1)


def _rotated(items: Sequence[int], start: int) -> list[int]:
    start %= len(items)
    return [*items[start:], *items[:start]]


def _add(loads: Loads, edges: Iterable[tuple[int, int]], share: float) -> None:
    for edge in edges:
        loads[edge] = loads.get(edge, 0.0) + share
