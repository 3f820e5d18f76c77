"""Checks across the keys of a scenario's [cluster]."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scenarios.config.interconnect import DEFAULT_NETWORK, NETWORKS, WITH_LEAVES
from scenarios.config.toml.hardware.kernel_table import check_kernel_tables
from scenarios.config.toml.hardware.sections import (
    ClusterSection,
    FaultSection,
    InsideSection,
    NetworkSection,
    NicSection,
)
from scenarios.config.toml.look import Look
from scenarios.config.toml.tree import KeyPath
from scenarios.config.toml.values import MOST_GPUS

MOST_MESH_GPUS = 16  # existing meshes have 8 at most; the search for rings takes longer with each GPU


def check_cluster(cluster: ClusterSection, look: Look) -> None:
    """Add everything that is missing from the cluster or does not fit together."""
    look.need(("cluster",), cluster, "hosts", "gpus_per_host", "cores", "host_memory", "gpu", "inside", "nic")
    hosts, gpus = cluster.hosts, cluster.gpus_per_host
    if hosts is not None and gpus is not None and hosts * gpus > MOST_GPUS:
        reason = f"because gpus_per_host = {gpus} and no more than {MOST_GPUS} GPUs in all are supported"
        look.mistakes.add(("cluster", "hosts"), f"at most {MOST_GPUS // gpus}, {reason}")
    gpu = cluster.gpu
    look.need(("cluster", "gpu"), gpu, "kind", "memory", "memory_rate", "flops")
    if gpu is not None and gpu.kernel_table is not None:
        check_kernel_tables(gpu.kernel_table, look.mistakes)
    look.need(("cluster", "gpu", "flops"), gpu.flops if gpu else None, "float32")
    _check_inside(cluster.inside or InsideSection(), cluster.gpus_per_host, look)
    _check_domains(cluster, look)
    _check_nic(cluster.nic or NicSection(), cluster.gpus_per_host, look)
    _check_network(cluster.network or NetworkSection(), look)
    _check_rails(cluster, look)
    rates, times = ("acknowledgements", "send_rate", "receive_rate"), ("message", "post", "issue", "wake")
    look.need(("cluster", "tcp"), cluster.tcp, "queue", "send_buffer", *rates, *times)
    _check_faults(cluster, look)


def _check_inside(inside: InsideSection, gpus_per_host: int | None, look: Look) -> None:
    path = ("cluster", "inside")
    look.need(path, inside, "kind", "rate", "latency")
    if inside.kind in ("pcie", "memory"):
        look.need(path, inside, "bridge_rate")
    if inside.kind == "nvlink":
        look.refuse(path, inside, ("bridge_rate",), "with kind = 'nvlink'")
    if inside.kind == "nvlink_mesh":
        look.need(path, inside, "links")
    elif inside.kind is not None:
        look.refuse(path, inside, ("links",), "unless kind = 'nvlink_mesh'")
    if inside.kind not in (None, "nvlink"):
        look.refuse(path, inside, ("hosts_per_domain",), "unless kind = 'nvlink'")
    if inside.kind in ("pcie", "memory"):
        keys = ("host_rate", "gpus_per_host_link")
        look.refuse(path, inside, keys, f"with kind = '{inside.kind}', whose rate and bridge_rate say it")
    elif inside.host_rate is None:
        look.refuse(path, inside, ("gpus_per_host_link",), "without host_rate")
    if inside.kind == "nvlink_mesh" and inside.links is not None:
        _check_mesh(inside, inside.links, gpus_per_host, look)


def _check_mesh(inside: InsideSection, links: list[list[int]], gpus_per_host: int | None, look: Look) -> None:
    path = ("cluster", "inside")
    wrong = mesh_mistake(links, gpus_per_host)
    if wrong is not None:
        look.mistakes.add((*path, "links"), wrong)
    elif any(not count for i, row in enumerate(links) for j, count in enumerate(row) if i != j):
        look.need(path, inside, "bridge_rate")
    else:
        look.refuse(path, inside, ("bridge_rate",), "where every two GPUs have NVLinks")


def _check_rails(cluster: ClusterSection, look: Look) -> None:
    """Add mistakes of a rail-only network, in which bytes reach another rail's NIC only over NVLink."""
    network, inside, nic = cluster.network, cluster.inside, cluster.nic
    if network is None or not NETWORKS[network.kind or DEFAULT_NETWORK].by_rail or inside is None or nic is None:
        return
    path = ("cluster", "network", "kind")
    if inside.kind not in (None, "nvlink"):
        look.mistakes.add(path, f"a kind that joins all NICs, because cluster.inside.kind = '{inside.kind}'")
    elif nic.per == "host":
        look.mistakes.add(path, "a kind that joins all NICs, because cluster.nic.per = 'host'")


def _check_domains(cluster: ClusterSection, look: Look) -> None:
    """Add mistakes of NVLink domains of several hosts, which must be identical, also in NICs and leaves."""
    inside, nic, network = cluster.inside, cluster.nic, cluster.network
    size, path = inside.hosts_per_domain if inside else None, ("cluster", "inside", "hosts_per_domain")
    if size is None or size == 1 or not look.mistakes.sound(path):
        return
    if cluster.hosts is not None and cluster.hosts > size and cluster.hosts % size:
        look.mistakes.add(path, f"a number that divides cluster.hosts = {cluster.hosts}, or one that is no smaller")
    elif nic is not None and nic.per == "host":
        look.mistakes.add(path, "1, or a NIC for each GPU (cluster.nic.per = 'gpu')")
    elif network is not None and network.hosts_per_leaf is not None and network.hosts_per_leaf % size:
        reason = f"cluster.network.hosts_per_leaf = {network.hosts_per_leaf}, as a domain is behind one leaf"
        look.mistakes.add(path, f"a number that divides {reason}")


def _check_nic(nic: NicSection, gpus_per_host: int | None, look: Look) -> None:
    path = ("cluster", "nic")
    look.need(path, nic, "per", "rate", "latency")
    if nic.per == "host":
        look.need(path, nic, "count")
    if nic.per == "gpu" and None not in (nic.count, gpus_per_host) and nic.count != gpus_per_host:
        look.mistakes.add((*path, "count"), f"{gpus_per_host}, one for each GPU, or no count")


def _check_network(network: NetworkSection, look: Look) -> None:
    path = ("cluster", "network")
    if not look.mistakes.sound((*path, "kind")):
        return
    if NETWORKS[network.kind or DEFAULT_NETWORK].has_leaves:
        look.need(path, network, "hosts_per_leaf")
    else:
        look.refuse(path, network, ("hosts_per_leaf", "oversubscription"), f"unless kind = {WITH_LEAVES}")


def _check_faults(cluster: ClusterSection, look: Look) -> None:
    """Check that each fault names one existing part, and that no part has two faults at a time."""
    of_part: dict[tuple[str, int | None, int], list[int]] = {}
    faults = cluster.faults or ()
    for index, fault in enumerate(faults):
        path: KeyPath = ("cluster", "faults", index)
        kinds = [kind for kind in ("gpu", "nic", "leaf") if getattr(fault, kind) is not None]
        if not look.mistakes.sound(path):
            continue
        if len(kinds) != 1:
            look.mistakes.add(path, "one of gpu, nic and leaf")
            continue
        _check_fault(path, fault, cluster, look, kind=kinds[0])
        others = of_part.setdefault((kinds[0], fault.host, getattr(fault, kinds[0])), [])
        same = next((other for other in others if _meet(faults[other], fault)), None)
        others.append(index)
        if same is not None and look.mistakes.sound(path):
            look.mistakes.add(path, f"a part or a time of its own, but cluster.faults[{same}] has it already")


def _meet(one: FaultSection, other: FaultSection) -> bool:
    """Return whether two faults overlap in time."""
    return (one.begin or 0) < (other.end or math.inf) and (other.begin or 0) < (one.end or math.inf)


def _check_fault(path: KeyPath, fault: FaultSection, cluster: ClusterSection, look: Look, *, kind: str) -> None:
    if kind == "gpu":
        look.refuse(path, fault, ("rate",), "with gpu, which has a speed")
    if kind == "gpu" or fault.rate is None:
        look.need(path, fault, "speed")
    else:
        look.refuse(path, fault, ("speed",), "with rate")
    if fault.end is not None and fault.end <= (fault.begin or 0):
        look.mistakes.add((*path, "end"), "a time after begin")
    network = cluster.network or NetworkSection()
    if kind == "leaf":
        look.refuse(path, fault, ("host",), "with leaf")
        if not look.mistakes.sound(("cluster", "network", "kind")):
            return
        if not NETWORKS[network.kind or DEFAULT_NETWORK].has_leaves:
            look.refuse(path, fault, ("leaf",), f"unless cluster.network.kind = {WITH_LEAVES}")
        elif cluster.hosts is not None and network.hosts_per_leaf is not None:
            leaves = -(-cluster.hosts // network.hosts_per_leaf)
            _check_below((leaves, "the number of leaves"), (*path, "leaf"), fault.leaf, look)
        return
    look.need(path, fault, "host")
    _check_below((cluster.hosts, "cluster.hosts"), (*path, "host"), fault.host, look)
    nic = cluster.nic or NicSection()
    if kind == "nic" and nic.per == "host":
        _check_below((nic.count, "cluster.nic.count"), (*path, "nic"), fault.nic, look)
    elif kind == "gpu" or nic.per == "gpu":
        _check_below((cluster.gpus_per_host, "cluster.gpus_per_host"), (*path, kind), getattr(fault, kind), look)


def _check_below(limit: tuple[int | None, str], path: KeyPath, place: int | None, look: Look) -> None:
    count, what = limit
    if count is not None and place is not None and place >= count:
        look.mistakes.add(path, f"a whole number below {count}, which is {what}")


def mesh_mistake(links: Sequence[Sequence[int]], gpus_per_host: int | None) -> str | None:
    """Return a phrase of what was expected of a matrix of NVLinks [GPU i, GPU j]; None if it is valid."""
    size, rows = len(links), range(len(links))
    if gpus_per_host is not None and size < gpus_per_host:
        return f"a row for each GPU, because gpus_per_host = {gpus_per_host}"
    if not 2 <= size <= MOST_MESH_GPUS:
        return f"2 to {MOST_MESH_GPUS} rows, one for each GPU"
    for i in rows:
        if len(links[i]) != size:
            return f"{size} numbers in each row, as there are {size} rows, but row {i} has {len(links[i])}"
    for i in rows:
        if links[i][i]:
            return f"no NVLinks from GPU {i} to itself"
        for j in range(i):
            if links[i][j] != links[j][i]:
                return f"as many NVLinks from GPU {j} to GPU {i} as back"
    apart = [gpu for gpu in rows if gpu not in _find_reached(links)]
    return (
        f"NVLinks that join all GPUs, but none lead from GPU 0 to GPU {apart[0]}, not even over others"
        if apart
        else None
    )


def _find_reached(links: Sequence[Sequence[int]]) -> set[int]:
    """Return GPU 0 and all GPUs that it reaches over NVLinks."""
    reached, new = {0}, [0]
    while new:
        gpu = new.pop()
        found = [to for to, count in enumerate(links[gpu]) if count and to not in reached]
        reached.update(found)
        new += found
    return reached
