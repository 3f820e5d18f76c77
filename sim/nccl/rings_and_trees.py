"""The traffic between GPUs in NCCL's rings, chains and trees.

Every load is a mapping from (source, destination) group ranks to the share of the buffer that crosses. Rings and trees
go through each host in chains, of which there is one for each host and channel: `chains[channel][host]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import TypeAlias

from sim.nccl.costs import GroupShape, NcclCosts
from sim.nccl.tuning import mesh_rings

Loads: TypeAlias = dict[tuple[int, int], float]
Chains: TypeAlias = Sequence[Sequence[Sequence[int]]]


def members_by_host(layout: Sequence[int]) -> list[list[int]]:
    """Return the group ranks of each host, hosts in the order of their first rank."""
    hosts: dict[int, list[int]] = {}
    for rank, host in enumerate(layout):
        hosts.setdefault(host, []).append(rank)
    return list(hosts.values())


def gpus_in_order(members: Sequence[Sequence[int]]) -> list[int]:
    """Return the GPU number of each group rank, if the first rank of a host is its GPU 0."""
    gpus = {rank: gpu for host in members for gpu, rank in enumerate(host)}
    return [gpus[rank] for rank in range(len(gpus))]


def shape_of(
    members: Sequence[Sequence[int]], costs: NcclCosts, gpus: Sequence[int] | None = None, hosts: int | None = None
) -> GroupShape:
    """Return the group's shape on this cluster, with as many rails as its host with the fewest ranks can feed.

    `gpus`: number of each rank's GPU within its host. `hosts`: total number, if `members` has only one host of each
    kind.
    """
    nics, hosts = costs.nics_per_host or costs.ranks_per_host, hosts or len(members)
    rails = min(nics, *map(len, members), costs.ranks_per_host) if hosts > 1 else 1
    parts: tuple[tuple[int, ...], ...] = ()
    if costs.mesh is not None:
        gpu = gpus_in_order(members) if gpus is None else gpus
        # Hosts with equal parts count once: the search for channels is the slow part.
        parts = tuple(dict.fromkeys(tuple(sorted(gpu[rank] for rank in host)) for host in members))
    return GroupShape(ranks=sum(map(len, members)), hosts=hosts, rails=rails, gpus=parts)


def chains_of(members: Sequence[Sequence[int]], shape: GroupShape, costs: NcclCosts, gpus: Sequence[int]) -> Chains:
    """Return the chains of a mesh's rings, or else one per rail that starts at the rail's GPU.

    A ring enters by that GPU's NIC and leaves by its predecessor's, so that each NIC has one ring in and one out.
    """
    if costs.mesh is None:
        return [[_rotate(host, rail) for host in members] for rail in range(shape.rails)]
    by_host = []
    for host in members:
        ranks = {gpus[rank]: rank for rank in host}
        by_host.append([[ranks[gpu] for gpu in ring] for ring in mesh_rings(tuple(sorted(ranks)), shape, costs)])
    return list(zip(*by_host, strict=True))


def ring_loads(chains: Chains, edge_share: float) -> Loads:
    """Load every edge of every ring with `edge_share` of the ring's part of the buffer."""
    loads: Loads = {}
    for ring in _rings(chains):
        _add(loads, zip(ring, ring[1:] + ring[:1], strict=True), edge_share / len(chains))
    return loads


def chain_loads(chains: Chains, root: int, towards_root: bool) -> Loads:
    """Load the rings cut before `root`: the whole buffer goes once to every other rank, or from them to the root."""
    loads: Loads = {}
    for ring in _rings(chains):
        cut = _rotate(ring, ring.index(root))
        if towards_root:  # the same ring, cut behind the root
            cut = _rotate(cut, 1)
        _add(loads, pairwise(cut), 1 / len(chains))
    return loads


def tree_loads(chains: Chains) -> Loads:
    """Load two binary trees over the hosts per channel, with a chain inside each host; sums go up and results come
    down.

    A host that is an inner node of one tree is, where numbers allow, a leaf of the other; each tree carries half the
    buffer.
    """
    loads: Loads = {}
    hosts = len(chains[0])
    both = trees(hosts)
    share = 1 / (len(chains) * len(both))
    for by_host in chains:
        for parents in both:
            up = [(by_host[host][0], by_host[parent][0]) for host, parent in enumerate(parents) if parent >= 0]
            up += [(far, near) for one in by_host for near, far in pairwise(one)]
            _add(loads, up, share)
            _add(loads, [(near, far) for far, near in up], share)
    return loads


def trees(hosts: int) -> list[list[int]]:
    """Return the parents of both trees, by host; one host is one tree."""
    return [tree_parents(hosts), _other_tree(hosts)] if hosts > 1 else [[-1]]


def nvls_loads(members: Sequence[Sequence[int]], rails: int, *, offload: bool = False) -> Loads:
    """Load NVLS: through a host's switch every GPU sends its buffer and gets the result; between hosts, two trees per
    rail.

    A GPU has one link to the switch each way, so this load equals that of each GPU sending its buffer to the next one.
    `offload`: the network's switches reduce in place of the trees.
    """
    loads: Loads = {}
    for host in members:
        if len(host) > 1:
            _add(loads, zip(host, [*host[1:], host[0]], strict=True), 1.0)
    if offload:
        _add_offload(loads, [[host[rail] for host in members] for rail in range(rails)])
    elif len(members) > 1:
        for rail in range(rails):
            for edge, share in tree_loads([[[host[rail]] for host in members]]).items():
                _add(loads, [edge], share / rails)
    return loads


def collnet_direct_loads(members: Sequence[Sequence[int]], rails: int) -> Loads:
    """Load CollNet direct: each head (a NIC's GPU) gets its part from all GPUs of its host, and returns the sum to
    them.
    """
    loads: Loads = {}
    for host in members:
        for head in host[:rails]:
            others = [rank for rank in host if rank != head]
            _add(loads, [(rank, head) for rank in others], 1 / rails)
            _add(loads, [(head, rank) for rank in others], 1 / rails)
    _add_offload(loads, [[host[rail] for host in members] for rail in range(rails)])
    return loads


def collnet_chain_loads(chains: Chains) -> Loads:
    """Load CollNet chain: along each host's chain to its head, the first, and back."""
    loads: Loads = {}
    for by_host in chains:
        up = [(far, near) for one in by_host for near, far in pairwise(one)]
        _add(loads, [*up, *((near, far) for far, near in up)], 1 / len(chains))
    _add_offload(loads, [[one[0] for one in by_host] for by_host in chains])
    return loads


def pat_loads(members: Sequence[Sequence[int]], *, towards_owner: bool) -> Loads:
    """Load PAT: ranks exchange at distances of powers of two, each over as many ranks' parts as are new at that
    distance.
    """
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
    """Return each node's parent in NCCL's binary tree over nodes 0 .. size - 1; the root 0 has parent -1, odd nodes are
    leaves.
    """
    parents = [-1]
    for node in range(1, size):
        step = node & -node
        parent = (node - step) | 2 * step
        # A parent beyond the last node is replaced by the node without its lowest bit, as in ncclGetBtree.
        parents.append(parent if parent < size else node - step)
    return parents


def idle_seconds(
    loads: Mapping[tuple[int, int], float],
    members: Sequence[Sequence[int]],
    costs: NcclCosts,
    gpus: Sequence[int],
) -> float:
    """Return the time that the bottleneck link or NIC needs per byte of the buffer on an idle cluster."""
    place = {rank: (host, gpus[rank]) for host, ranks in enumerate(members) for rank in ranks}
    nics = costs.nics_per_host or costs.ranks_per_host
    network_bytes_per_s = costs.inter_bytes_per_s * costs.payload_share
    busy: dict[tuple[str, int, int, int], float] = {}
    for (source, target), share in loads.items():
        (here, i), (there, j) = place[source], place[target]
        if here != there:
            via = rail(i, j, costs) if costs.by_rail else None  # else bytes leave by the source's own NIC
            exit_gpu = i if via is None else via
            crossed = {
                ("nic out", here, exit_gpu % nics, 0): network_bytes_per_s,
                ("nic in", there, j % nics, 0): network_bytes_per_s,
            }
            if costs.lanes_bytes_per_s is not None:
                lanes = (("lanes out", here, exit_gpu, 0), ("lanes in", there, j, 0))
                crossed |= dict.fromkeys(lanes, costs.lanes_bytes_per_s)
            if exit_gpu != i:
                detour = (("gpu out", here, i, 0), ("gpu in", here, exit_gpu, 0))
                crossed |= dict.fromkeys(detour, costs.intra_bytes_per_s)
        elif costs.mesh is None:
            crossed = dict.fromkeys((("gpu out", here, i, 0), ("gpu in", there, j, 0)), costs.intra_bytes_per_s)
        else:
            route = costs.mesh.route(i, j, [gpus[rank] for rank in members[here]])
            crossed = {(hop[0], here, *hop[1:]): costs.mesh.bytes_per_s(hop) for hop in route}
        for link, bytes_per_s in crossed.items():
            busy[link] = busy.get(link, 0.0) + share / bytes_per_s
    return max(busy.values(), default=0.0)


def pcie_seconds(
    loads: Mapping[tuple[int, int], float],
    members: Sequence[Sequence[int]],
    costs: NcclCosts,
    gpus: Sequence[int],
) -> float:
    """Return `idle_seconds` of PCI Express, which traffic to other GPUs and to NICs crosses; 0 without PCI Express."""
    if costs.bridge_bytes_per_s is None:
        return 0.0
    place = {rank: (host, gpus[rank]) for host, ranks in enumerate(members) for rank in ranks}
    busy: dict[tuple[str, int, int], float] = {}
    for (source, target), share in loads.items():
        for direction, (host, gpu) in (("out", place[source]), ("in", place[target])):
            for lanes, bytes_per_s in ((gpu, costs.intra_bytes_per_s), (-1, costs.bridge_bytes_per_s)):
                busy[direction, host, lanes] = busy.get((direction, host, lanes), 0.0) + share / bytes_per_s
    return max(busy.values(), default=0.0)


def relays_of(
    pairs: Iterable[tuple[int, int]],
    members: Sequence[Sequence[int]],
    costs: NcclCosts,
    gpus: Sequence[int],
    *,
    uses_rails: bool,
) -> dict[tuple[int, int], int]:
    """Return the ranks that forward the bytes of other pairs.

    On a mesh, a relay connects two GPUs of a host without NVLinks to each other. With `uses_rails`, as in NCCL's
    point-to-point (PXN, NCCL_P2P_PXN_LEVEL = 2, its default: ncclTopoGetNetDev in src/graph/search.cc), bytes for GPU j
    of another host go over NVLink to the sender's own GPU j, and out of that GPU's NIC. PXN needs NVLinks between the
    two, a NIC for each GPU, and GPU j in the group. Without a spine, all traffic across rails does so. Where NVLinks
    join several hosts, the relay is on the sender's own host: PXN's peer is on the same system (src/graph/paths.cc).
    """
    uses_rails = uses_rails or costs.by_rail
    if costs.mesh is None and not (uses_rails and _has_rails(costs)):
        return {}
    place = {rank: (host, gpus[rank]) for host, ranks in enumerate(members) for rank in ranks}
    ranks = {at: rank for rank, at in place.items()}
    relays: dict[tuple[int, int], int] = {}
    for source, target in pairs:
        (here, i), (there, j) = place[source], place[target]
        via: int | None = None
        if here == there:
            if costs.mesh is not None:
                via = costs.mesh.relay(i, j, [gpus[rank] for rank in members[here]])
        elif uses_rails:
            exit_gpu = rail(i, j, costs)
            via = exit_gpu if exit_gpu is not None and (here, exit_gpu) in ranks else None
        if via is not None:
            relays[source, target] = ranks[here, via]
    return relays


def rail(source: int, target: int, costs: NcclCosts) -> int | None:
    """Return the GPU of the source's machine through whose NIC PXN sends: that with the target's number; None: itself.

    Args:
        source: the sending GPU, numbered within its NVLink domain (NCCL's node).
        target: the receiving GPU, numbered within its own.
        costs: the cluster.
    """
    tray = costs.gpus_per_tray or costs.ranks_per_host
    via = source - source % tray + target % tray
    if via == source or not _has_rails(costs) or not (costs.mesh is None or costs.mesh.links[source][via]):
        return None
    return via


def _has_rails(costs: NcclCosts) -> bool:
    return costs.nvlink and costs.nics_per_host is None


def _other_tree(size: int) -> list[int]:
    """Return the first tree mirrored, or shifted by one where mirroring would keep the same leaves."""
    first = tree_parents(size)
    # In an even tree mirroring swaps odd nodes, the leaves, with even ones; in an odd tree it would keep them.
    if size % 2 == 0:
        return [size - 1 - parent if parent >= 0 else -1 for parent in reversed(first)]
    shifted = [(parent + 1) % size if parent >= 0 else -1 for parent in first]
    return _rotate(shifted, -1)


def _rings(chains: Chains) -> list[list[int]]:
    """Return the rings that join each channel's chains in the order of hosts."""
    return [list(chain.from_iterable(by_host)) for by_host in chains]


def _add_offload(loads: Loads, heads: Sequence[Sequence[int]]) -> None:
    """Load reducing switches: the heads of each rail, one per host, send them their part of the buffer and get the sum.

    Switches above NICs and leaf uplinks forward one sum, so this load equals that of each head sending its part to the
    next.
    """
    for rail in heads:
        _add(loads, zip(rail, [*rail[1:], rail[0]], strict=True), 1 / len(heads))


def _rotate(items: Sequence[int], start: int) -> list[int]:
    start %= len(items)
    return [*items[start:], *items[:start]]


def _add(loads: Loads, edges: Iterable[tuple[int, int]], share: float) -> None:
    for edge in edges:
        loads[edge] = loads.get(edge, 0.0) + share
