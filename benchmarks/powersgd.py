"""Measures one PowerSGD step of ours against torch's own hooks, side by side on gloo.

    python -m benchmarks.powersgd [--repeats 15]

Both are called on the same GradBucket of DDP: one bucket, because torch's hooks hang with more. torch's batched hook
raises as shipped; its one broken call is mended here. Calls take turns, and the median of each and the ratio of
the medians are printed: the time of rank 0 from the call until the future is there, and the CPU time of its threads.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as shipped
from torch.nn.parallel import DistributedDataParallel

import scenarios
from real.ddp.hooks import PowerSGDState, batched_powerSGD_hook, powerSGD_hook
from scenarios.config.load import load
from scenarios.config.scenario import Recommender
from scenarios.workloads.dlrm.dense import dense_shapes
from scenarios.workloads.powersgd.config import resnet50_shapes

LIBRARY = Path(scenarios.__file__).parent / "library"
CRITEO = Recommender.of(load(LIBRARY / "criteo_dlrm_8x8.toml").workload).model
assert CRITEO is not None
MODELS = {"ResNet-50": resnet50_shapes(), "DLRM dense": dense_shapes(CRITEO)}
RANKS = (1, 2, 4)
OPTIONS: dict[str, Any] = {"start_powerSGD_iter": 2}
WARM_UP = 4  # steps: two without compression, one that allocates, one more


class Given(nn.Module):
    """Parameters of these shapes; their gradients are all one."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(shape) for shape in shapes)

    def forward(self) -> Tensor:
        return torch.stack([weight.sum() for weight in self.weights]).sum()


@dataclass(frozen=True)
class Contender:
    """A hook and its state."""

    name: str
    hook: Callable[[Any, Any], torch.futures.Future[Tensor]]
    state: Any


def contenders(rank: int) -> list[Contender]:
    ours = [
        Contender("ours", hook, PowerSGDState(None, rank, **OPTIONS)) for hook in (powerSGD_hook, batched_powerSGD_hook)
    ]
    theirs = [
        Contender("torch", hook, shipped.PowerSGDState(None, rank, **OPTIONS))
        for hook in (shipped.powerSGD_hook, shipped.batched_powerSGD_hook)
    ]
    return [one for pair in zip(ours, theirs, strict=True) for one in pair]


def mend_torch() -> None:
    """Its batched hook hands a matrix to a function that asks for a stack of matrices."""
    broken: Any = shipped._orthogonalize
    shipped._orthogonalize = lambda matrix, epsilon=0: broken(
        matrix.unsqueeze(0) if matrix.dim() == 2 else matrix, epsilon
    )


def bucket_of(shapes: Sequence[tuple[int, ...]]) -> Any:
    """DDP's own bucket, all gradients in one."""
    kept: list[Any] = []

    def keep(_: None, bucket: Any) -> torch.futures.Future[Tensor]:
        kept.append(bucket)
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model = DistributedDataParallel(Given(shapes))
    model.register_comm_hook(None, keep)
    model().backward()
    (bucket,) = kept
    return bucket


def measure(shapes: Sequence[tuple[int, ...]], rank: int, repeats: int) -> list[tuple[float, float]]:
    """Wall and CPU seconds of each contender, medians."""
    bucket, rivals = bucket_of(shapes), contenders(rank)
    gradients = torch.randn(bucket.buffer().shape, generator=torch.Generator().manual_seed(dist.get_rank()))
    times: list[list[tuple[float, float]]] = [[] for _ in rivals]
    for turn in range(WARM_UP + repeats):
        for place in range(len(rivals)):
            which = (place + turn) % len(rivals)
            bucket.buffer().copy_(gradients)
            dist.barrier()
            begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
            rivals[which].hook(rivals[which].state, bucket).wait()
            times[which].append((time.perf_counter() - begin_s, time.process_time() - begin_cpu_s))
    return [
        (statistics.median(wall for wall, _ in each[WARM_UP:]), statistics.median(cpu for _, cpu in each[WARM_UP:]))
        for each in times
    ]


def member(index: int, size: int, port: int, repeats: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    mend_torch()
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=index, world_size=size, timeout=timedelta(seconds=120))
    for name, shapes in MODELS.items():
        for rank in RANKS:
            layerwise, their_layerwise, batched, their_batched = measure(shapes, rank, repeats)
            for hook, ours, theirs in (
                ("layerwise", layerwise, their_layerwise),
                ("batched", batched, their_batched),
            ):
                if index == 0:
                    print(row(size, name, hook, rank, ours, theirs), flush=True)
    dist.destroy_process_group()


def row(size: int, name: str, hook: str, rank: int, ours: tuple[float, float], theirs: tuple[float, float]) -> str:
    milliseconds = " ".join(f"{1e3 * seconds:9.2f}" for seconds in (ours[0], theirs[0]))
    ratios = " ".join(f"{mine / other:9.2f}" for mine, other in zip(ours, theirs, strict=True))
    return f"{size:>9} {name:<11} {hook:<10} {rank:>4} {milliseconds} {ratios}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    for name, shapes in MODELS.items():
        print(f"{name}: {sum(map(prod, shapes)):,} elements in {len(shapes)} parameters")
    print("processes model       hook       rank   ours ms  torch ms  ours/torch  of CPU time")
    context = multiprocessing.get_context("spawn")
    for size in (1, 2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        members = [context.Process(target=member, args=(index, size, port, repeats)) for index in range(size)]
        for process in members:
            process.start()
        for process in members:
            process.join()


if __name__ == "__main__":
    main()
