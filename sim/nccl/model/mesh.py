"""NCCL's search for rings where NVLinks join the GPUs of a host without a switch, so that paths differ.

NCCL tries the speeds of a channel in order, and at each speed near paths before far ones: NVLinks between two GPUs,
then NVLinks over a GPU between them, then PCI Express. At each it lays ring after ring, as many as the links carry, and
backtracks where a ring does not close. Rules are those of NCCL 2.30 (src/graph/search.cc, paths.cc). Two details are
not modelled: a ring enters a host by the NIC of its first GPU and leaves by that of its last, so neither takes an
NVLink to reach it; and all PCI Express traffic shares one bridge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from sim.nccl.model.search import LEAST_SPEED, MOST_RINGS, counted_nic, counted_share, speeds
from sim.nccl.model.topology import Generation, Path, generation

# A resource that rings share: the NVLinks from one GPU to another, the bridge, or a NIC.
Hop: TypeAlias = tuple[Literal["nvlink", "bridge", "nic out", "nic in"], int, int]
_BRIDGE: Hop = ("bridge", 0, 0)
# Most steps of a search at one speed, for identical rings and for different ones; as in NCCL.
_STEPS_IDENTICAL, _STEPS = 1 << 8, 1 << 14
# NCCL's GB/s for one ring in the GPUs' order, if the search finds none.
_FALLBACK_GB_PER_S = 0.1
# An NVLink's rate over NCCL's figure for it: up to 2.17 NCCL counted a V100's 22 GB/s (src/graph/topo.h), since 2.18 it
# lays rings as if a V100 had an A100's 20.
_CARRIED: Mapping[Generation, float] = {"Volta": 22 / 20}
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """A host's GPUs: `links[i][j]` NVLinks from GPU i to GPU j, each of `link_bytes_per_s` by the data sheet.

    Pairs without NVLinks share `bridge_bytes_per_s` of PCI Express; None if there are no such pairs.
    """

    links: tuple[tuple[int, ...], ...]
    link_bytes_per_s: float
    bridge_bytes_per_s: float | None

    def relay(self, source: int, target: int, among: Iterable[int]) -> int | None:
        """Return the GPU `among` others that NCCL forwards over between two GPUs without NVLinks: the widest, then the
        first.

        None: no GPU has NVLinks to both, or the two have their own.
        """
        if self.links[source][target]:
            return None
        widths = {via: min(self.links[source][via], self.links[via][target]) for via in among}
        via = max(widths, key=lambda one: widths[one], default=source)
        return via if widths.get(via) else None

    def route(self, source: int, target: int, among: Iterable[int]) -> tuple[Hop, ...]:
        """Return the hops from one GPU to another in a group of GPUs."""
        if self.links[source][target]:
            return (("nvlink", source, target),)
        via = self.relay(source, target, among)
        return (_BRIDGE,) if via is None else (("nvlink", source, via), ("nvlink", via, target))

    def bytes_per_s(self, hop: Hop) -> float:
        """Return the data sheet's rate of a hop that is no NIC."""
        kind, source, target = hop
        if kind == "nvlink":
            return self.links[source][target] * self.link_bytes_per_s
        assert self.bridge_bytes_per_s is not None, "pairs without NVLinks have a bridge"
        return self.bridge_bytes_per_s

    def counted_gb_per_s(self, hop: Hop, compute_capability: int) -> float:
        """Return the rate that NCCL assumes for a hop, in GB/s."""
        share = counted_share(compute_capability, nvlink=hop[0] == "nvlink")
        return self.bytes_per_s(hop) / 1e9 * share


@dataclass(frozen=True, kw_only=True)  # no slots: cached_property needs a __dict__
class HostPart:
    """The GPUs of one host that a group has; `nics` are their NICs in order, where the group has several hosts."""

    mesh: Mesh
    gpus: tuple[int, ...]
    nics: tuple[int, ...]
    nic_gb_per_s: float
    compute_capability: int

    @cached_property
    def routes(self) -> Mapping[tuple[int, int], tuple[Hop, ...]]:
        return {
            (source, target): self.mesh.route(source, target, self.gpus)
            for source in self.gpus
            for target in self.gpus
            if source != target
        }

    @cached_property
    def counted_gb_per_s(self) -> Mapping[Hop, float]:
        """Rate in GB/s that NCCL assumes, by hop that a ring may cross."""
        hops = {hop for route in self.routes.values() for hop in route}
        rates = {hop: self.mesh.counted_gb_per_s(hop, self.compute_capability) for hop in sorted(hops)}
        slot = counted_nic(self.compute_capability, self.nic_gb_per_s)
        for nic in sorted(set(self.nics)):
            rates["nic in", nic, 0] = rates["nic out", nic, 0] = slot
        return rates

    @property
    def widest_gb_per_s(self) -> float:
        """Rate in GB/s of all NVLinks of the GPU with the most; no rings are faster, so NCCL stops there."""
        rates = self.counted_gb_per_s
        return max(sum(rates.get(("nvlink", gpu, to), 0.0) for to in self.gpus) for gpu in self.gpus)

    def path(self, source: int, target: int) -> Path:
        """Return NCCL's distance from one GPU to another."""
        route = self.routes[source, target]
        if route == (_BRIDGE,):
            return Path.PHB
        return Path.NVL if len(route) == 1 else Path.NVB

    def hops(self, ring: Sequence[int]) -> list[Hop]:
        """Return the hops of a ring: from its last GPU back to the first, or out of the host and in from another."""
        crossed = [hop for edge in pairwise(ring) for hop in self.routes[edge]]
        if self.nics:
            nic = dict(zip(self.gpus, self.nics, strict=True))
            return [("nic in", nic[ring[0]], 0), *crossed, ("nic out", nic[ring[-1]], 0)]
        return [*crossed, *self.routes[ring[-1], ring[0]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rings:
    """A set of rings of one speed, each a host's GPUs in its order; `path` is the farthest that NCCL allowed."""

    rings: tuple[tuple[int, ...], ...]
    gb_per_s: float
    path: Path

    @property
    def all_gb_per_s(self) -> float:
        return len(self.rings) * self.gb_per_s


@lru_cache(maxsize=1024)  # each operation searches each host of the group
def search(part: HostPart) -> Rings:
    """Return the rings that NCCL would use on two or more GPUs, or on one and its NIC."""
    best: Rings | None = None
    for speed in speeds(part.compute_capability, crosses=bool(part.nics)):
        if best and (speed < LEAST_SPEED * best.gb_per_s or best.all_gb_per_s >= part.widest_gb_per_s > 0):
            break
        for path in (Path.NVL, Path.NVB, Path.PHB):
            if best and path > best.path:
                break
            rings = _at(part, speed, path, better_than=best.all_gb_per_s / speed if best else 0)
            if rings and (best is None or len(rings) * speed > best.all_gb_per_s):
                best = Rings(rings=rings, gb_per_s=speed, path=path)
    return best or Rings(rings=(part.gpus,), gb_per_s=_FALLBACK_GB_PER_S, path=Path.SYS)


def bus_gb_per_s(part: HostPart, rings: Sequence[Sequence[int]], network_gb_per_s: float) -> float:
    """Return the GB/s of these rings together past one point, at equal rates, until a link or NIC is full."""
    crossings = Counter(hop for ring in rings for hop in part.hops(ring))
    more = {"nvlink": _CARRIED.get(generation(part.compute_capability), 1.0)}
    carried = {hop: part.counted_gb_per_s[hop] * more.get(hop[0], 1.0) for hop in crossings}
    carried |= dict.fromkeys((hop for hop in crossings if hop[0] in ("nic in", "nic out")), network_gb_per_s)
    return min(len(rings) * carried[hop] / count for hop, count in crossings.items())


def _at(part: HostPart, speed: float, path: Path, better_than: float) -> tuple[tuple[int, ...], ...]:
    """Return rings of one speed, identical unless different ones are more; none if `better_than` rings are out of
    reach.

    On several hosts a ring first tries to return to the NIC by which it entered.
    """
    found: tuple[tuple[int, ...], ...] = ()
    for crosses_nics in (False, True) if part.nics else (False,):
        packing = _Packing(part, speed, path, crosses_nics)
        if packing.most <= max(better_than + _EPSILON, len(found)):
            continue
        for rings in (packing.identical(), packing.different()):
            found = max(found, rings, key=len)
    return found


class _Packing:
    """A search for rings of one speed, one after the other; the rest of each hop is counted in rings.

    `most`: upper bound of rings, as each goes through every GPU, and on several hosts through NICs.
    """

    def __init__(self, part: HostPart, speed: float, path: Path, crosses_nics: bool) -> None:
        self._part = part
        self._path = path
        self._crosses_nics = crosses_nics
        # The slack keeps a quotient that is whole but for rounding from losing a ring.
        self._left = {hop: int(counted / speed + _EPSILON) for hop, counted in part.counted_gb_per_s.items()}
        self._nic = dict(zip(part.gpus, part.nics, strict=False))
        self._next = {gpu: sorted(self._reachable(gpu), key=lambda to: self._order(gpu, to)) for gpu in part.gpus}
        self._steps = 0
        self.most = self._bound()

    def identical(self) -> tuple[tuple[int, ...], ...]:
        """Return one ring as often as it fits."""
        self._steps = _STEPS_IDENTICAL
        best: tuple[tuple[int, ...], ...] = ()
        for ring in self._rings(0):
            times = 1 + min(self._left[hop] // count for hop, count in Counter(self._part.hops(ring)).items())
            if times > len(best):
                best = (ring,) * min(times, self.most)
        return best

    def different(self) -> tuple[tuple[int, ...], ...]:
        """Return rings that differ, each as it fits next to earlier ones."""
        self._steps = _STEPS
        best: tuple[tuple[int, ...], ...] = ()
        laid: list[tuple[int, ...]] = []
        searches = [self._rings(0)]  # one suspended search for each ring laid so far, and one for the next
        while searches and len(best) < self.most:
            ring = next(searches[-1], None)
            if ring is None:
                searches.pop()
                del laid[-1:]
                continue
            laid.append(ring)
            if len(laid) > len(best):
                best = tuple(laid)
            searches.append(self._rings(len(laid)))
        return best

    def _bound(self) -> int:
        gpus = self._part.gpus
        bridge = self._left.get(_BRIDGE, 0) if self._path >= Path.PHB else 0
        links = [sum(self._left.get(("nvlink", gpu, to), 0) for to in gpus) for gpu in gpus]
        if not self._part.nics:
            return min(MOST_RINGS, bridge + min(links))
        through_nics = sum(left for (kind, _, _), left in self._left.items() if kind == "nic in")
        inside = (sum(links) + bridge) // (len(gpus) - 1) if len(gpus) > 1 else MOST_RINGS
        return min(MOST_RINGS, through_nics, inside)

    def _reachable(self, gpu: int) -> list[int]:
        return [to for to in self._part.gpus if to != gpu and self._part.path(gpu, to) <= self._path]

    def _order(self, gpu: int, to: int) -> tuple[float, int, int]:
        """Return a sort key: wide paths first, then short ones, then neighbours."""
        route, gpus = self._part.routes[gpu, to], self._part.gpus
        width = min(self._part.counted_gb_per_s[hop] for hop in route)
        return -width, len(route), (gpus.index(to) - gpus.index(gpu)) % len(gpus)

    def _rings(self, laid: int) -> Iterator[tuple[int, ...]]:
        """Yield every ring that fits; its hops stay reserved until the next ring is requested."""
        if not self._part.nics:
            yield from self._from((self._part.gpus[0],))
            return
        nics = sorted(set(self._part.nics))
        for first in sorted(self._part.gpus, key=lambda gpu: (nics.index(self._nic[gpu]) - laid) % len(nics)):
            entered: tuple[Hop, ...] = (("nic in", self._nic[first], 0),)
            if self._take(entered):
                yield from self._from((first,))
                self._give(entered)

    def _from(self, ring: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if self._steps <= 0:
            return
        self._steps -= 1
        if len(ring) == len(self._part.gpus):
            back = self._way_back(ring)
            if back and self._take(back):
                yield ring
                self._give(back)
            return
        for to in self._next[ring[-1]]:
            route = self._part.routes[ring[-1], to]
            if to not in ring and self._take(route):
                yield from self._from((*ring, to))
                self._give(route)

    def _way_back(self, ring: tuple[int, ...]) -> tuple[Hop, ...]:
        """Return the hops from the last GPU to the first, or out of the host; none if that is too far."""
        first, last = ring[0], ring[-1]
        if not self._part.nics:
            return self._part.routes[last, first] if self._part.path(last, first) <= self._path else ()
        if self._nic[first] != self._nic[last] and not self._crosses_nics:
            return ()
        return (("nic out", self._nic[last], 0),)

    def _take(self, hops: Sequence[Hop]) -> bool:
        if not all(self._left[hop] for hop in hops):
            return False
        for hop in hops:
            self._left[hop] -= 1
        return True

    def _give(self, hops: Sequence[Hop]) -> None:
        for hop in hops:
            self._left[hop] += 1
