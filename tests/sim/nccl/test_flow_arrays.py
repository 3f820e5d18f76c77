"""Many transfers in arrays: they cross the links of their paths, and a collective takes what single ones take."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from scenarios.config.hardware import Cluster, Inside, Link, Network, Nics
from scenarios.config.load import load_profile
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.engine.fabric import Fabric
from sim.engine.flow_bundle import MERGED_SHARE
from sim.engine.link_load import load, load_of_routes
from sim.engine.network import routes
from sim.nccl import transport as phases
from sim.nccl.plan import Phase
from sim.nccl.transport import Many
from sim.run import simulate
from tests.small import Play, cluster, scenario

LEAVES = Network(kind="leaf_spine", latency_ns=100, hosts_per_leaf=2, oversubscription=2.0)
PCIE = Inside(kind="pcie", link=Link(bytes_per_s=16e9, latency_ns=500), bridge_bytes_per_s=24e9)
SWITCH = Inside(kind="nvlink", link=Link(bytes_per_s=1e11, latency_ns=1000))
SHARED = Nics(per="host", count=2, link=Link(bytes_per_s=1e9, latency_ns=1000))
CLUSTERS = {
    "switch": cluster(3, 8),
    "leaves": cluster(5, 4, network=LEAVES),
    "pcie": cluster(5, 4, inside=PCIE, nics=SHARED, network=LEAVES),
    "mesh": dataclasses.replace(load_profile("dgx1_v100"), hosts=3),
    "one host": cluster(1, 18),
    "rails": cluster(5, 4, network=Network(kind="rail_only", latency_ns=100)),
    "domains": cluster(6, 3, inside=dataclasses.replace(SWITCH, hosts_per_domain=2)),
}


def pairs(on: Cluster) -> list[tuple[int, int]]:
    return list(itertools.permutations(range(on.world_size), 2))


@pytest.mark.parametrize("name", CLUSTERS)
def test_routes_are_paths(name: str) -> None:
    """Also over a third GPU of the source's host."""
    fabric = Fabric(CLUSTERS[name])
    ways: list[tuple[int, int, int | None]] = [(source, target, None) for source, target in pairs(CLUSTERS[name])]
    ways += [
        (source, target, relay)
        for source, target, _ in ways[::3]
        if (relay := source ^ 1) not in (source, target) and relay < CLUSTERS[name].world_size
    ]
    columns = [np.array([-1 if way[column] is None else way[column] for way in ways]) for column in range(3)]
    found = routes(fabric.network, *columns)
    for way, crossed in zip(ways, found.crossed.tolist(), strict=True):
        links = [found.capacities[number] for number in crossed if number >= 0]
        assert sorted(link.name for link in links) == sorted(link.name for link in fabric.path(*way).links)
    assert len(set(found.crossed.ravel().tolist()) - {-1}) == len(found.capacities)


def test_the_load_of_routes_is_the_sum_over_paths() -> None:
    on = CLUSTERS["leaves"]
    ranks = tuple(range(on.world_size))
    transfers = tuple((source, target, 1e3 * (1 + (source * 7 + target) % 5)) for source, target in pairs(on))
    relays = {(source, target): source ^ 1 for source, target, _ in transfers if source // 4 != target // 4}
    phase = Phase(latency_ns=0, transfers=transfers, coupled=False, relays=relays)
    fabric = Fabric(on)
    each = load(ranks, transfers, lambda source, target: fabric.path(source, target, relays.get((source, target))))
    arrays = Many.of(fabric, ranks, phase)
    together = load_of_routes(arrays.routes, arrays.sizes)
    assert together.uses == each.uses
    assert together.weight == each.weight
    passing = phases._passing(phase)
    assert dict(enumerate(arrays.touched_bytes(len(ranks)).tolist())) == pytest.approx(passing)
    assert arrays.of_members(len(ranks)).tolist() == [
        sum((source == member) + (target == member) for source, target, _ in phase.transfers)
        for member in range(len(ranks))
    ]


def exchange(on: Cluster, *, fidelity: str = "flows", beside: bool = False) -> Recording:
    """An uneven all-to-all of all ranks; `beside` one in each half of them, and a kernel on each rank."""

    def sizes(size: int) -> list[list[int]]:
        draw = np.random.default_rng(5)
        return [[int(one) for one in row] for row in draw.exponential(1 << 20, (size, size))]

    async def program(rank: Rank) -> None:
        halves = [rank.new_group(range(first, rank.world_size, 2)) for first in (0, 1)] if beside else []
        works = [rank.compute(Kernel(kind="look-up", bytes_read=1e9), int, label="kernel")] if beside else []
        for group in (rank.world, *halves):
            if rank.rank in group:
                matrix, me = sizes(group.size), group.index(rank.rank)
                sends, receives = matrix[me], [row[me] for row in matrix]
                given, taken = (torch.empty(sum(counts), device="meta") for counts in (sends, receives))
                label = f"exchange {group.name}"
                works.append(rank.all_to_all_single(taken, given, receives, sends, group=group, label=label))  # type: ignore[arg-type]
        for work in works:
            await work

    made = scenario(on, library="nccl", payload="sizes", fidelity=fidelity)
    return simulate(made, Play(program))


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("name", CLUSTERS)
def test_an_all_to_all_in_arrays_takes_as_long_as_single_flows(
    name: str, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank by rank within a thousandth of the whole, and every link carries the same and is as long busy."""
    on = CLUSTERS[name]
    multiprocessors = dataclasses.replace(on.host.gpu, multiprocessors=100)
    on = dataclasses.replace(on, host=dataclasses.replace(on.host, gpu=multiprocessors))
    together = exchange(on, beside=beside)
    monkeypatch.setattr(phases, "MOST_SINGLE", 10**9)
    single = exchange(on, beside=beside)
    whole_ns = max(span.end_ns for span in single.spans)
    assert together.spans != single.spans, "arrays are used"
    for one, other in zip(together.spans, single.spans, strict=True):
        assert (one.rank, one.label) == (other.rank, other.label)
        assert one.end_ns == pytest.approx(other.end_ns, abs=2 * MERGED_SHARE * whole_ns)
    links = {link.link: link for link in together.links}
    for same in single.links:
        link = links.pop(same.link)
        assert link.bytes_carried == pytest.approx(same.bytes_carried)
        assert link.busy_ns == pytest.approx(same.busy_ns, abs=2 * MERGED_SHARE * whole_ns)
    assert not links


def test_the_transfers_of_16_ranks_are_an_activity_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """So their ends are exact, to the ns."""
    as_it_is = exchange(cluster(2, 8))
    monkeypatch.setattr(phases, "MOST_SINGLE", 10**9)
    assert exchange(cluster(2, 8)).spans == as_it_is.spans
