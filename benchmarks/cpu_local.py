"""Measures the figures of scenarios/profiles/cpu_local.toml: gloo between two processes, and one core's arithmetic.

    python -m benchmarks.cpu_local

Medians; run it on an idle machine. With more ranks than cores everything is slower.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

REPEATS = 9
MIB = 1 << 20


def median_s(function: Callable[[], object], calls: int = 1) -> float:
    """Of one call, over REPEATS series of `calls`, the first one dropped."""
    times = []
    for _ in range(REPEATS + 1):
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times[1:])


def compute() -> dict[str, str]:
    torch.set_num_threads(1)
    square, rows = torch.randn(1024, 1024), torch.randn(16 * MIB // 4)
    target, table = torch.empty_like(rows), torch.randn(200_000, 16)
    ids, tiny = torch.randint(0, 200_000, (100_000,)), torch.ones(4)
    gemm_s = median_s(lambda: square @ square)
    copy_s = median_s(lambda: target.copy_(rows))
    gather_s = median_s(lambda: table[ids])
    return {
        "gemm float32": f"{2 * 1024**3 / gemm_s / 1e9:.1f} GFLOP/s",
        "copy, read and written": f"{2 * 16 * MIB / copy_s / 1e9:.1f} GB/s",
        "gather of rows of 64 B, read and written": f"{2 * 100_000 * 64 / gather_s / 1e9:.2f} GB/s",
        "launch of one operator": f"{1e6 * median_s(lambda: tiny.add_(1), 1000):.1f} us",
    }


def member(rank: int, port: int, answers: multiprocessing.Queue[dict[str, str]]) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=timedelta(seconds=60))

    def ping(tensor: torch.Tensor) -> None:
        for turn in (0, 1):
            if rank == turn:
                dist.send(tensor, 1 - rank)
            else:
                dist.recv(tensor, 1 - rank)

    small, large = torch.ones(1), torch.ones(16 * MIB // 4)
    one_way_s = median_s(lambda: ping(small), 100) / 2
    large_s = median_s(lambda: ping(large)) / 2
    reduce_s = median_s(lambda: dist.all_reduce(small), 100)
    barrier_s = median_s(dist.barrier, 100)
    if rank == 0:
        answers.put(
            {
                "send and receive of 4 B": f"{1e6 * one_way_s:.0f} us",
                "rate of 16 MiB": f"{16 * MIB / large_s / 1e9:.2f} GB/s",
                "all_reduce of 4 B (a notice and a message, twice)": f"{1e6 * reduce_s:.0f} us",
                "barrier": f"{1e6 * barrier_s:.0f} us",
            }
        )
    dist.destroy_process_group()


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[dict[str, str]] = context.Queue()
    members = [context.Process(target=member, args=(rank, port, answers)) for rank in (0, 1)]
    for process in members:
        process.start()
    wire = answers.get(timeout=120)
    for process in members:
        process.join(30)
    for name, value in {**wire, **compute()}.items():
        print(f"{name:<52} {value}")


if __name__ == "__main__":
    main()
