"""Buckets of random gradients, runs of many steps over them, and a scenario to change."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scenarios.compression import PowerSGDState
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Host, Inside, Link, Network, Nics
from scenarios.config.scenario import RunSettings, Scenario
from scenarios.modules.ddp_buckets import GradientBucket
from tests.lockstep import Lockstep, play
from tests.small import change

Shapes = Sequence[tuple[int, ...]]
Gradients = list[list[Tensor]]  # by step and rank, flat


def random_gradients(
    shapes: Shapes, ranks: int, steps: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Gradients:
    generator = torch.Generator().manual_seed(seed)
    numel = sum(map(prod, shapes))
    return [[torch.randn(numel, generator=generator).to(dtype) for _ in range(ranks)] for _ in range(steps)]


class Run:
    """Reduces one bucket, step after step, on all ranks; states and results stay for the test to look at."""

    def __init__(
        self,
        algorithm: Callable[..., Any],
        shapes: Shapes,
        gradients: Gradients,
        *,
        pickle_before: int = -1,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        self._algorithm, self._shapes, self._gradients = algorithm, shapes, gradients
        self._pickle_before, self._device, self._options = pickle_before, device, options
        ranks = len(gradients[0])
        self.states = [PowerSGDState(**options) for _ in range(ranks)]
        results, self.fabric = play(self._steps, ranks, device=device)
        self.by_rank: list[list[Tensor]] = results
        self.results: list[Tensor] = results[0]

    async def _steps(self, rank: Any) -> list[Tensor]:
        results = []
        for step, of_ranks in enumerate(self._gradients):
            if step == self._pickle_before:
                self.states[rank.rank] = pickle.loads(pickle.dumps(self.states[rank.rank]))
            values = of_ranks[rank.rank].clone().to(self._device)
            bucket = GradientBucket(0, values, self._shapes, is_last=True)
            results.append((await self._algorithm(rank, self.states[rank.rank], bucket)).clone())
        return results


def list_issued(fabric: Lockstep, rank: int = 0) -> list[tuple[object, ...]]:
    """What a rank issued: collectives, then kernels, each in order."""
    calls = [
        (call.op, call.group.name, call.label, call.bytes_in, call.dtype) for call in fabric.calls if call.rank == rank
    ]
    return [*calls, *[(label, kernel) for member, label, kernel in fabric.kernels if member == rank]]


GPU_BYTES = 1 << 30


def a_scenario(ranks: int, **chosen: Any) -> Scenario:
    """`ranks` hosts of one device each."""
    link = Link(bytes_per_s=1e9, latency_ns=5_000)
    gpu = Gpu(name="cpu", kind="cpu", memory_bytes=GPU_BYTES, memory_bytes_per_s=1e10, flops_per_s={"float32": 1e10})
    host = Host(
        gpus=1,
        gpu=gpu,
        inside=Inside(kind="memory", link=link, bridge_bytes_per_s=1e10),
        nics=Nics(per="host", count=1, link=link),
        cores=1,
        memory_bytes=GPU_BYTES,
    )
    settings: dict[str, Any] = {
        "name": "test",
        "path": Path("test.toml"),
        "program": "powersgd",
        "cluster": Cluster(profile="test", hosts=ranks, host=host, network=Network(kind="non_blocking")),
        "run": RunSettings(library="gloo", seed=7, payload="values"),
    }
    return change(Scenario(**settings), **chosen)
