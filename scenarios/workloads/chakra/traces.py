"""Reads all ranks' traces: finds files and groups, orders nodes by dependencies, compares members' calls."""

from __future__ import annotations

import hashlib
import heapq
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, NamedTuple

from scenarios import given_file
from scenarios.seam.kernel import ELEMENT_BYTES
from scenarios.workloads.chakra.nodes import (
    COLLECTIVE,
    COMM_TYPES,
    EXACT,
    NODE_TYPES,
    RECV,
    ROOTS,
    SEND,
    SPLITS,
    TraceError,
    TraceNode,
    Value,
    read,
)

_UNEVEN = ("ALL_TO_ALL", "ALL_GATHER")  # whose members may give different sizes
WORLD = "world"  # the group of calls that name none
_FILE = re.compile(r"(?P<name>.+)\.(?P<rank>\d+)\.et")


class CallGroup(NamedTuple):
    """The identity of a group of calls: its name in traces, and its ranks."""

    name: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Traces:
    """The nodes of each rank, each after the nodes on which it depends."""

    files: Sequence[Path]
    nodes: Sequence[Sequence[TraceNode]]
    groups: Mapping[str, tuple[int, ...]]

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.files)

    def key(self, node: TraceNode, rank: int, gpus_per_host: int) -> CallGroup:
        """Return the group of a collective: that of `pg_name`, of the dimensions that it involves, or all ranks.

        Raises:
            TraceError: there is no such group, or the rank is not in it.
        """
        name = str(node.attributes.get("pg_name", ""))
        dims = node.attributes.get("involved_dim")
        if name:
            if name not in self.groups:
                known = ", ".join(self.groups) or "none"
                raise self.error(rank, node, f"pg_name = '{name}': expected a group of chakra.groups ({known})")
            found = CallGroup(name, self.groups[name])
        elif isinstance(dims, list) and dims and not all(dims):
            found = self._of_dims(node, dims, rank, gpus_per_host)
        else:
            found = CallGroup(WORLD, tuple(range(self.world_size)))
        if rank not in found.ranks:
            raise self.error(rank, node, f"group {found.name} of {list(found.ranks)}: expected rank {rank} in it")
        return found

    def _of_dims(self, node: TraceNode, dims: Sequence[int], rank: int, gpus: int) -> CallGroup:
        """Return the group for two dimensions: the first within a host, the second across hosts."""
        host, place = divmod(rank, gpus)
        if len(dims) == 2 and any(dims):
            if dims[0]:
                return CallGroup(f"host {host}", tuple(range(host * gpus, (host + 1) * gpus)))
            return CallGroup(f"place {place}", tuple(range(place, self.world_size, gpus)))
        raise self.error(rank, node, f"involved_dim = {[bool(dim) for dim in dims]}: expected one or two, or pg_name")

    def error(self, rank: int, node: TraceNode, sentence: str) -> TraceError:
        """Return an error that names a node."""
        return TraceError(f"{self.files[rank]}: node {node.id}: {sentence}")


def files_of(named: Path) -> list[Path]:
    """Return the files by rank, for a folder or a prefix (NAME of NAME.RANK.et).

    Raises:
        TraceError: there are none, or those of several names, or a rank's file is missing.
    """
    folder, prefix = (named, None) if os.path.isdir(named) else (named.parent, named.name)
    found = [each for each in map(_FILE.fullmatch, sorted(path.name for path in folder.glob("*.et"))) if each]
    names = sorted({each["name"] for each in found} if prefix is None else {prefix})
    if len(names) > 1:
        raise TraceError(f"traces of one name in {folder}, but there are {', '.join(names)}: name {folder / names[0]}")
    by_rank = {int(each["rank"]): folder / each.string for each in found if each["name"] in names}
    if not by_rank:
        raise TraceError(f"files {prefix or 'NAME'}.RANK.et in {folder}, but there are none")
    missing = next((rank for rank in range(max(by_rank) + 1) if rank not in by_rank), None)
    if missing is not None:
        raise TraceError(f"a trace of each rank, but there is no file {folder / f'{names[0]}.{missing}.et'}")
    return [by_rank[rank] for rank in sorted(by_rank)]


def digest(files: Sequence[Path], groups: Path | None) -> str:
    """Return a digest of all files' contents."""
    found = hashlib.sha256()
    for path in (*files, *([groups] if groups else [])):
        found.update(given_file.content(path))
    return found.hexdigest()


def read_traces(named: Path, groups: Path | None, *, with_controls: bool) -> Traces:
    """Read the traces of all ranks, and check each by itself.

    Raises:
        TraceError: a trace is invalid; names the file and the node.
    """
    files = files_of(named)
    stats = tuple(path.stat().st_mtime_ns for path in (*files, *([groups] if groups else [])))
    return _read(tuple(files), groups, with_controls, stats)


@lru_cache(maxsize=1)
def _read(files: tuple[Path, ...], groups: Path | None, with_controls: bool, _: tuple[int, ...]) -> Traces:
    nodes = [_in_order(read(path), path, with_controls=with_controls) for path in files]
    return Traces(files, nodes, {} if groups is None else _groups(groups, len(files)))


def _groups(path: Path, world_size: int) -> dict[str, tuple[int, ...]]:
    """Read ASTRA-sim's file of communicator groups: lists of ranks by group name.

    Raises:
        TraceError: the file is no such JSON.
    """
    try:
        found: Any = given_file.read_json(path)
    except OSError as error:
        raise TraceError(f"{path}: could not be read: {error.strerror}") from None
    except ValueError as error:
        raise TraceError(f"{path}: expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise TraceError(f"{path}: expected lists of ranks by the names of their groups")
    for name, ranks in found.items():
        if not (isinstance(ranks, list) and ranks and all(type(rank) is int for rank in ranks)):
            raise TraceError(f"{path}: {name} = {ranks!r}: expected a list of ranks")
        if len(set(ranks)) < len(ranks) or min(ranks) < 0 or max(ranks) >= world_size:
            raise TraceError(f"{path}: {name} = {ranks!r}: expected ranks below {world_size}, each once")
    return {name: tuple(ranks) for name, ranks in found.items()}


def _in_order(nodes: Sequence[TraceNode], path: Path, *, with_controls: bool) -> list[TraceNode]:
    """Return nodes by start and id, each after the nodes on which it depends.

    Raises:
        TraceError: an id occurs twice, a dependency is missing or cyclic, or a node cannot be simulated.
    """
    of_id = dict[int, TraceNode]()
    for node in nodes:
        if node.id in of_id:
            raise TraceError(f"{path}: node {node.id}: expected an id of its own, but an earlier node has it")
        of_id[node.id] = node
        _check(node, path)
    before = {node.id: node.depends_on(with_controls=with_controls) for node in nodes}
    for id_, deps in before.items():
        for dep in deps:
            if dep not in of_id:
                raise TraceError(f"{path}: node {id_}: depends on node {dep}: expected a node of the trace")
    order = TopologicalSorter(before)
    try:
        order.prepare()
    except CycleError as error:
        stuck = min(error.args[1])
        raise TraceError(
            f"{path}: node {stuck}: expected dependencies without a cycle, but it depends on itself"
        ) from None
    # By start, then id: the order is the same whatever order the file has, also where traces have no times.
    ready, found = list[tuple[int, int]](), list[TraceNode]()
    while order.is_active():
        for id_ in order.get_ready():
            heapq.heappush(ready, (of_id[id_].start_ns, id_))
        _, id_ = heapq.heappop(ready)
        found.append(of_id[id_])
        order.done(id_)
    return found


def _check(node: TraceNode, path: Path) -> None:
    try:
        if node.type not in NODE_TYPES:
            raise TraceError(f"type {node.type}: expected one of {', '.join(NODE_TYPES.values())}")
        if node.type in (COLLECTIVE, SEND, RECV):
            comm_type = node.number("comm_type")
            if node.type == COLLECTIVE and ("comm_type" not in node.attributes or comm_type >= len(COMM_TYPES)):
                given = node.attributes.get("comm_type", "nothing")
                raise TraceError(f"comm_type = {given}: expected 0 to {len(COMM_TYPES) - 1}, {COMM_TYPES[0]} and so on")
            if "comm_size" not in node.attributes and not (node.type == COLLECTIVE and comm_type == 9):
                raise TraceError("expected comm_size, its bytes")
            if (dtype := str(node.attributes.get("comm_dtype", "uint8"))) not in ELEMENT_BYTES:
                raise TraceError(f"comm_dtype = {dtype!r}: expected one of {', '.join(ELEMENT_BYTES)}")
            end = {SEND: "comm_dst", RECV: "comm_src"}.get(node.type)
            if end is not None and end not in node.attributes:
                raise TraceError(f"expected {end}, the rank at the other end")
            node.splits()
            for name in ("comm_size", "comm_tag", end or ROOTS.get(COMM_TYPES[comm_type], "comm_size")):
                node.number(name)
        for name in ("num_ops", "tensor_size", EXACT):
            node.number(name)
    except TraceError as error:
        raise TraceError(f"{path}: node {node.id}: {error}") from None


def calls_of(traces: Traces, gpus_per_host: int) -> dict[CallGroup, dict[int, list[TraceNode]]]:
    """Return the collectives of each group, by rank and in the rank's order.

    Raises:
        TraceError: members of a group make different calls, or a message has no other end.
    """
    made = dict[CallGroup, dict[int, list[TraceNode]]]()
    for rank, nodes in enumerate(traces.nodes):
        for node in nodes:
            if node.type == COLLECTIVE:
                key = traces.key(node, rank, gpus_per_host)
                splits, root = node.splits(), ROOTS.get(COMM_TYPES[node.number("comm_type")], "")
                if root in node.attributes and node.number(root) not in key.ranks:
                    expected = f"expected a rank of group {key.name}, {list(key.ranks)}"
                    raise traces.error(rank, node, f"{root} = {node.number(root)}: {expected}")
                if splits is not None and len(splits) != len(key.ranks):
                    raise traces.error(rank, node, f"{SPLITS}: expected {len(key.ranks)} of them, one for each member")
                made.setdefault(key, {each: [] for each in key.ranks})[rank].append(node)
    for key, by_rank in made.items():
        first = key.ranks[0]
        for rank in key.ranks[1:]:
            _check_same(traces, key, (first, by_rank[first]), (rank, by_rank[rank]))
    _check_messages(traces)
    return made


def _check_same(
    traces: Traces, key: CallGroup, one: tuple[int, list[TraceNode]], two: tuple[int, list[TraceNode]]
) -> None:
    for number, (own, others) in enumerate(zip(one[1], two[1], strict=False)):
        (first, size), (second, other) = map(_find_sent, (own, others))
        if first != second or (size != other and first not in _UNEVEN):
            made = f"{second} of {other:,} bytes is call {number} of group {key.name}"
            raise traces.error(two[0], others, f"{made}: expected {first} of {size:,} bytes, as of rank {one[0]}")
        for (name, expected), (_, found) in zip(_common(own, key), _common(others, key), strict=True):
            if found != expected:
                raise traces.error(two[0], others, f"{name} = {found}: expected {expected}, as of rank {one[0]}")
    if len(one[1]) != len(two[1]):
        (rank, most), (fewer, few) = (one, two) if len(one[1]) > len(two[1]) else (two, one)
        raise traces.error(
            rank, most[len(few)], f"call {len(few)} of group {key.name}: expected one in {traces.files[fewer]}, too"
        )


def _find_sent(node: TraceNode) -> tuple[str, int]:
    return COMM_TYPES[node.number("comm_type")], node.number("comm_size")


def _common(node: TraceNode, key: CallGroup) -> list[tuple[str, Value]]:
    """Return the further attributes of a call that its members have in common, in an order of its type."""
    kind = COMM_TYPES[node.number("comm_type")]
    defaults: dict[str, Value] = {"comm_dtype": "uint8", **({ROOTS[kind]: key.ranks[0]} if kind in ROOTS else {})}
    if kind.startswith("REDUCE_SCATTER"):
        defaults[SPLITS] = []
    return [(name, node.attributes.get(name, default)) for name, default in defaults.items()]


def _check_messages(traces: Traces) -> None:
    """Check that the n-th message from a rank to another has the tag and size of the n-th one received."""
    sent, received = (defaultdict[tuple[int, int], list[TraceNode]](list) for _ in range(2))
    for rank, nodes in enumerate(traces.nodes):
        for node in nodes:
            if node.type in (SEND, RECV):
                is_sent = node.type == SEND
                peer = node.number("comm_dst" if is_sent else "comm_src")
                if peer >= traces.world_size or peer == rank:
                    raise traces.error(rank, node, f"a message with rank {peer}: expected another of the ranks")
                (sent if is_sent else received)[(rank, peer) if is_sent else (peer, rank)].append(node)
    for ends in {**sent, **received}:
        (source, target), both = ends, (sent[ends], received[ends])
        for given, taken in zip(*both, strict=False):
            what = [(each.number("comm_tag"), each.number("comm_size")) for each in (given, taken)]
            if what[0] != what[1]:
                words = [f"tag {tag} and {size:,} bytes" for tag, size in what]
                raise traces.error(target, taken, f"{words[1]}: expected {words[0]}, as rank {source} sends next")
        if len(both[0]) != len(both[1]):
            is_sent, common = len(both[0]) > len(both[1]), min(map(len, both))
            rank, other = (source, target) if is_sent else (target, source)
            raise traces.error(rank, both[not is_sent][common], f"expected its other end in {traces.files[other]}")
