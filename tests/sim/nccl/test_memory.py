"""NCCL's buffers on a GPU: those that a run has connected, against what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.trace import MemoryRow
from sim.nccl.memory import Connections
from sim.run import simulate
from tests.small import Play, cluster, scenario

MIB = 1 << 20


def buffers(body: Callable[[Rank], Any], hosts: int, gpus: int) -> dict[int, int]:
    whole, program = scenario(cluster(hosts, gpus), library="nccl"), Play(body)
    program.memory = tuple(
        MemoryRow(rank=rank, part="own", size_bytes=1, capacity_bytes=1) for rank in range(hosts * gpus)
    )
    rows = simulate(whole, program).memory
    return {row.rank: row.size_bytes for row in rows if row.part == "communication buffers"}


async def sums(rank: Rank) -> None:
    await rank.all_reduce(rank_tensor(rank))


async def exchanges(rank: Rank) -> None:
    given = rank_tensor(rank)
    await rank.all_to_all_single(given.clone(), given)


async def both(rank: Rank) -> None:
    await sums(rank)
    await sums(rank)
    await exchanges(rank)


def rank_tensor(rank: Rank) -> Any:
    return torch.ones(64, device=rank.device)


def test_exchanges_connect_every_peer_and_sums_a_ring() -> None:
    ring, peers = buffers(sums, 1, 8), buffers(exchanges, 1, 8)
    assert set(ring) == set(range(8))
    assert 0 < ring[0] < peers[0]
    assert ring[0] % (12 * MIB) == peers[0] % (7 * 12 * MIB) == 0
    assert buffers(both, 1, 8)[0] == ring[0] + peers[0], "buffers stay, and are there once"


def test_peers_on_other_hosts_share_a_buffer() -> None:
    two, four = buffers(exchanges, 2, 2)[0], buffers(exchanges, 4, 2)[0]
    assert two == four


def test_a_lone_rank_has_none() -> None:
    assert buffers(sums, 1, 1) == {}


def test_buffers_on_eight_h100s_equal_the_reported_bytes() -> None:
    """NCCL issue 1685: 32 channels to each of 7 peers, 3.28 GB more after the first all-to-all."""

    class OneDomain:
        def domain(self, rank: int) -> int:
            return 0

    found = Connections(Group("world", tuple(range(8))), 32, peers=True).bytes_of(0, OneDomain())  # type: ignore[arg-type]
    assert found == 7 * 32 * 12 * MIB
    assert found == pytest.approx(3.28e9, rel=0.15)
