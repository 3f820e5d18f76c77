"""More ranks than cores: short collectives, as a program, and the share of posts that a spinning thread holds up.

How often that happens follows from what waits for what, which the simulator knows; of each time it may happen, it does
in a share that only a crowd can show.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from statistics import mean

import torch

from real.calibration.sight import whole_s
from scenarios.hardware import Cluster
from scenarios.rank import Rank
from scenarios.scenario import Scenario
from scenarios.trace import MemoryRow, PlanRow, Span

WARM_UP = 5
REPEATS = 150
_BYTES = 1 << 10
_CALLS = ("barrier", "all_reduce", "all_gather", "broadcast")
# The longest that a thread spins, about: until the system's tick takes its core. Of 1,704 spins of more than 30 us that
# one rank of three on 2 cores had in 4,200 short calls, ten lasted longer.
_SPIN_NS = 4_000_000
_SHARES = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22)

Means = Mapping[str, float]
Play = Callable[[Cluster], Means]


class Crowd:
    """Each call in turn, each repetition a step after a barrier."""

    plan: tuple[PlanRow, ...] = ()
    memory: tuple[MemoryRow, ...] = ()

    async def __call__(self, rank: Rank) -> None:
        whole = torch.zeros(_BYTES // 4, device=rank.device)
        share = torch.zeros(_BYTES // 4 // rank.world_size, device=rank.device)
        gathered = torch.zeros(share.numel() * rank.world_size, device=rank.device)
        for index in range((WARM_UP + REPEATS) * len(_CALLS)):
            await rank.barrier(label="together")
            with rank.step(index):
                match _CALLS[index % len(_CALLS)]:
                    case "barrier":
                        await rank.barrier()
                    case "all_reduce":
                        await rank.all_reduce(whole)
                    case "all_gather":
                        await rank.all_gather_into_tensor(gathered, share)
                    case "broadcast":
                        await rank.broadcast(whole, 0)


def means(spans: Iterable[Span]) -> Means:
    """Seconds of each call, from its first rank's start to its last rank's end, in the mean of its repetitions."""
    steps: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind == "step" and span.step >= WARM_UP * len(_CALLS):
            steps[span.step].append(span)
    times: dict[str, list[float]] = defaultdict(list)
    for step, own in steps.items():
        times[_CALLS[step % len(_CALLS)]].append(whole_s(own))
    return {name: mean(taken) for name, taken in times.items()}


def fit(cluster: Cluster, measured: Means, play: Play) -> Cluster:
    """The cluster with the share whose simulated means are nearest to the measured ones, by their ratios.

    `cluster` is what was measured on, with its other parameters known; `play` simulates the program on one.
    """
    assert cluster.tcp is not None

    def off(share: float) -> float:
        played = play(with_share(cluster, share))
        return sum(math.log(played[name] / taken) ** 2 for name, taken in measured.items())

    return with_share(cluster, min(_SHARES, key=off))


def with_share(cluster: Cluster, share: float) -> Cluster:
    """The cluster with this share of posts held up."""
    assert cluster.tcp is not None
    spin_ns = _SPIN_NS if share else 0
    return dataclasses.replace(cluster, tcp=dataclasses.replace(cluster.tcp, spin_ns=spin_ns, spin_share=share))


def build(scenario: Scenario) -> Crowd:
    """For `Job.program`."""
    return Crowd()
