"""What goes from host to host is what NICs carry, however it is played."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scenarios.config.hardware import Inside, Link
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, TrafficRow
from sim.engine.host_traffic import Traffic
from sim.run import simulate
from tests.lanes import examples
from tests.sim.collective_calls import issue
from tests.sim.nccl.folded.test_folded import MIB, World, exchange, worlds
from tests.sim.nccl.folded.test_folded import play as play_world
from tests.small import CORE, TCP, Play, cluster, scenario


def check_nics(recording: Recording) -> None:
    """For each host: what it gives to others left by its NICs, what it gets from others came in by them."""
    counts, moved = dict(recording.info.host_counts), {}
    for row in recording.traffic:
        each = row.bytes_carried * counts.get(row.from_host, 1) / counts.get(row.to_host, 1)
        for key, size_bytes in (((row.from_host, "out"), row.bytes_carried), ((row.to_host, "in"), each)):
            moved[key] = moved.get(key, 0.0) + size_bytes
    nics: dict[tuple[int, str], float] = {}
    for link in recording.links:
        if link.link_class == "nic":
            key = link.host, link.direction
            nics[key] = nics.get(key, 0.0) + link.bytes_carried
    assert any(nics.values())
    assert {key: size_bytes for key, size_bytes in moved.items() if size_bytes} == pytest.approx(
        {key: size_bytes for key, size_bytes in nics.items() if size_bytes}
    )


def everything(elements: int) -> Callable[[Rank], Awaitable[None]]:
    """Every kind of collective, and a message."""

    async def program(rank: Rank) -> None:
        size, device = rank.world.size, rank.device
        small, large = torch.ones(elements, device=device), torch.ones(size * elements, device=device)
        await rank.all_reduce(small)
        await rank.broadcast(small, 1)
        await rank.all_gather_into_tensor(large, small)
        await rank.reduce_scatter_tensor(small, large)
        await rank.all_to_all_single(torch.empty_like(large), large)
        if rank.rank == 0:
            await rank.send(small, size - 1)
        elif rank.rank == size - 1:
            await rank.recv(small, 0)
        await rank.barrier()

    return program


MESH = Inside(
    kind="nvlink_mesh",
    link=Link(bytes_per_s=2e10, latency_ns=700),
    links=((0, 1, 1, 0), (1, 0, 0, 1), (1, 0, 0, 1), (0, 1, 1, 0)),
    bridge_bytes_per_s=1e10,
)
WORLDS = {
    "gloo": scenario(cluster(3, 2)),
    "gloo over TCP": scenario(cluster(3, 1, gpu=CORE, tcp=TCP)),
    "gloo, sizes": scenario(cluster(3, 2), payload="sizes"),
    "gloo as loads": scenario(cluster(3, 2), fidelity="links"),
    "NCCL": scenario(cluster(3, 2), library="nccl"),
    "NCCL as loads": scenario(cluster(3, 2), library="nccl", fidelity="links"),
    "NCCL in arrays": scenario(cluster(5, 4), library="nccl", payload="sizes"),
    "NCCL on a mesh": scenario(cluster(2, 4, inside=MESH), library="nccl"),
}


@pytest.mark.parametrize("name", list(WORLDS))
def test_traffic_between_hosts_equals_the_nics_bytes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.gloo.library.MOST_RANKS", 2)  # "links" plays messages up to there
    check_nics(simulate(WORLDS[name], Play(everything(5000))))


def test_a_message_counts_once_with_its_header_and_notices():
    async def program(rank: Rank) -> None:
        if rank.rank == 0:
            await rank.send(torch.ones(1000), 3)
        elif rank.rank == 3:
            await rank.recv(torch.ones(1000), 0)

    assert simulate(scenario(cluster(2, 2)), Play(program)).traffic == [
        TrafficRow(from_host=0, to_host=1, bytes_carried=4000.0 + 48 + 48, bytes_inside=0.0),
        TrafficRow(from_host=1, to_host=0, bytes_carried=48.0, bytes_inside=0.0),
    ]


def test_traffic_inside_a_host_is_counted_separately():
    async def program(rank: Rank) -> None:
        if rank.rank < 2:
            await (rank.send(torch.ones(1000), 1) if rank.rank == 0 else rank.recv(torch.ones(1000), 0))

    assert simulate(scenario(cluster(2, 2)), Play(program)).traffic == [
        TrafficRow(from_host=0, to_host=0, bytes_carried=0.0, bytes_inside=4000.0 + 48 + 48 + 48)
    ]


@given(st.integers(1, 4), st.lists(st.tuples(*[st.integers(0, 15)] * 2, st.integers(1, 1 << 40)), max_size=50))
def test_arrays_count_as_one_by_one(gpus: int, transfers: list[tuple[int, int, int]]) -> None:
    ranks = [*range(30, 14, -1)]
    one, all_at_once, arrays = Traffic(gpus), Traffic(gpus), Traffic(gpus)
    for source, target, size_bytes in transfers:
        one.add(ranks[source], ranks[target], size_bytes)
    all_at_once.add_all(ranks, transfers)
    columns = np.array(transfers, np.int64).reshape(-1, 3).T
    arrays.add_many(ranks, columns[0], columns[1], columns[2].astype(float))
    assert one.rows() == all_at_once.rows()
    assert one.rows() == arrays.rows()  # whole numbers: no order rounds


def by_kind(world: World, recording: Recording) -> dict[tuple[int, int], float]:
    """All bytes between hosts of each two kinds, as the folded run has them, by the hosts that it plays."""
    classes = world.host_classes()
    found: dict[tuple[int, int], float] = {}
    for row in recording.traffic:
        ends = int(classes.class_of_host[row.from_host]), int(classes.class_of_host[row.to_host])
        found[ends] = found.get(ends, 0.0) + row.bytes_carried * row.host_count
    return {ends: size_bytes for ends, size_bytes in found.items() if size_bytes}


@given(worlds(), st.sampled_from(["sent", "received"]), st.sampled_from([600, 40_000]))
@examples(40)
def test_a_representative_hosts_traffic_equals_its_classes(world: World, side: Any, elements: int) -> None:
    program = exchange(world, side, elements)
    every, folded = (play_world(world, program, folded=is_folded) for is_folded in (False, True))
    assert by_kind(world, folded) == pytest.approx(by_kind(world, every))
    inside = [sum(row.bytes_inside * row.host_count for row in one.traffic) for one in (every, folded)]
    assert inside[1] == pytest.approx(inside[0])


@given(worlds(), st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "broadcast"]), st.integers(1, MIB))
@examples(40)
def test_traffic_of_rings_and_trees_equals_the_nics_bytes(world: World, op: str, share: int) -> None:
    async def program(rank: Rank) -> None:
        await issue(rank, op, share)

    check_nics(play_world(world, program, folded=True))


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("gpus", [1, 4])
def test_rings_and_trees_lead_where_those_of_all_hosts_lead(op: str, gpus: int) -> None:
    world = World(cluster(8, gpus), (0, 0, 1, 2, 2, 2, 1, 0), ((1,) * gpus,) * 3)

    async def program(rank: Rank) -> None:
        await issue(rank, op, MIB)

    every, folded = (play_world(world, program, folded=is_folded) for is_folded in (False, True))
    assert by_kind(world, folded) == pytest.approx(by_kind(world, every), rel=0.01)


def test_traffic_rows_count_hosts_of_every_class():
    world = World(cluster(4, 2), (0, 0, 0, 1), ((1, 1),) * 3)
    folded = play_world(world, exchange(world, "sent", 1000), folded=True)
    assert sorted({row.from_host: row.host_count for row in folded.traffic}.values()) == [1, 3]


def test_traffic_of_single_and_folded_transfers_adds_up():
    both = Traffic(1, [0, 2])
    both.add(0, 2, 5.0)
    both.add_folded(np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([0.0, 3.0]))
    assert both.rows() == [
        TrafficRow(from_host=0, to_host=2, bytes_carried=7.0, bytes_inside=0.0),
        TrafficRow(from_host=2, to_host=2, bytes_carried=0.0, bytes_inside=3.0),
    ]
