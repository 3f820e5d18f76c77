"""gloo's bytes on real sockets, as the kernel counts them, are those that the simulator's schedules send."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch._C._distributed_c10d import TCPStore

from scenarios.seam.calls import Call
from sim.gloo import algorithms as gloo
from tests.sim import collective_calls as make

RANKS, COUNT, FEW, ROOT = 3, 1001, 17, 1
_TCP_INFO, _BYTES_SENT = 11, 200  # linux/tcp.h: the option, and where tcpi_bytes_sent is in its struct
_PROBE = 5000  # elements by which a socket is known

Sent = dict[tuple[Any, Any], int]


def make_rooted(kind: str) -> Any:
    made = getattr(dist, kind)()
    made.rootRank = ROOT
    return made


def ones(*counts: int) -> list[torch.Tensor]:
    return [torch.ones(count) for count in counts]


def of_root(rank: int) -> list[list[torch.Tensor]]:
    return [ones(*[COUNT] * RANKS)] if rank == ROOT else []


# What torch calls, and the calls that the simulator plays.
CASES: dict[str, tuple[Callable[[Any, int], Any], list[Call]]] = {
    "reduce": (
        lambda pg, rank: pg.reduce(ones(COUNT), make_rooted("ReduceOptions")),
        make.reduction("reduce", 4 * COUNT, RANKS, root=ROOT),
    ),
    "gather": (
        lambda pg, rank: pg.gather(of_root(rank), ones(COUNT), make_rooted("GatherOptions")),
        make.make_rooted("gather", 4 * COUNT, RANKS, ROOT),
    ),
    "scatter": (
        lambda pg, rank: pg.scatter(ones(COUNT), of_root(rank), make_rooted("ScatterOptions")),
        make.make_rooted("scatter", 4 * COUNT, RANKS, ROOT),
    ),
    "all_gather": (
        lambda pg, rank: pg.allgather([ones(*[COUNT] * RANKS)], ones(COUNT)),
        make.in_parts("all_gather", [4 * COUNT] * RANKS, RANKS),
    ),
    "reduce_scatter": (
        lambda pg, rank: pg.reduce_scatter(ones(COUNT + rank), [ones(*[COUNT + place for place in range(RANKS)])]),
        make.in_parts("reduce_scatter", [4 * (COUNT + place) for place in range(RANKS)], RANKS),
    ),
    "all_gather_coalesced": (
        lambda pg, rank: pg.allgather_coalesced([ones(COUNT, FEW) for _ in range(RANKS)], ones(COUNT, FEW)),
        make.in_parts("all_gather_coalesced", [4 * COUNT * RANKS, 4 * FEW * RANKS], RANKS),
    ),
    "all_gather_into_tensor_coalesced": (
        lambda pg, rank: pg.allgather_into_tensor_coalesced(ones(COUNT * RANKS, FEW * RANKS), ones(COUNT, FEW)),
        make.in_parts("all_gather_into_tensor_coalesced", [4 * COUNT * RANKS, 4 * FEW * RANKS], RANKS),
    ),
    "reduce_scatter_tensor_coalesced": (
        lambda pg, rank: pg.reduce_scatter_tensor_coalesced(ones(COUNT, FEW), ones(COUNT * RANKS, FEW * RANKS)),
        make.in_parts("reduce_scatter_tensor_coalesced", [4 * COUNT * RANKS, 4 * FEW * RANKS], RANKS),
    ),
    "monitored_barrier": (lambda pg, rank: pg.monitored_barrier(), make.barrier(RANKS, "monitored_barrier")),
}


def count() -> Sent:
    """Payload bytes that this process has sent, by connection."""
    found: Sent = {}
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not str(link.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(link.name))) as each:
                info = each.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
                (found[each.getsockname()[:2], each.getpeername()[:2]],) = struct.unpack_from("Q", info, _BYTES_SENT)
    return found


def main(rank: int, port: int, answers: Connection) -> None:
    """Give the bytes that this rank sends to each in each case."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = TCPStore("127.0.0.1", port, is_master=rank == 0, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    pg: Any = dist.group.WORLD

    def meet(where: str) -> None:
        store.set(f"{where}/{rank}", "")
        store.wait([f"{where}/{other}" for other in range(RANKS)])

    def count_sent(where: str, call: Callable[[], Any]) -> Sent:
        meet(f"before {where}")
        before = count()
        meet(f"begin {where}")
        work = call()
        if work is not None:
            work.wait()
        meet(f"end {where}")
        return {key: value - before.get(key, 0) for key, value in count().items()}

    def message(source: int, target: int) -> Any:
        if rank == source:
            return pg.send(ones(_PROBE), target, 0)
        return pg.recv(ones(_PROBE), source, 0) if rank == target else None

    peers = {}
    for source in range(RANKS):
        for target in {*range(RANKS)} - {source}:
            found = count_sent(f"{source} to {target}", lambda source=source, target=target: message(source, target))
            peers |= {key: target for key, size in found.items() if size >= 4 * _PROBE}
    for name, (call, _) in CASES.items():
        row = [0] * RANKS
        for key, size in count_sent(name, lambda call=call: call(pg, rank)).items():
            if key in peers:
                row[peers[key]] += size
        answers.send((name, row))
    meet("the end")
    os._exit(0)  # taking gloo down may hang


@pytest.mark.real
@pytest.mark.slow
def test_calls_send_the_bytes_of_their_schedules() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = torch.multiprocessing.get_context("spawn")
    pipes = [start.Pipe(duplex=False) for _ in range(RANKS)]
    ranks = [start.Process(target=main, args=(rank, port, pipes[rank][1]), daemon=True) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    found: dict[str, list[list[int]]] = {name: [] for name in CASES}
    for receiver, _ in pipes:
        for _ in CASES:
            assert receiver.poll(100)
            name, row = receiver.recv()
            found[name].append(row)
    for rank in ranks:
        rank.join(20)
    for name, (_, calls) in CASES.items():
        pairs = gloo.totals(calls).pair_bytes
        assert found[name] == [[pairs.get((here, there), 0) for there in range(RANKS)] for here in range(RANKS)], name
