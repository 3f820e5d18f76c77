"""Two steps of training a module in the simulator, for the tests of its replicas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import torch

from scenarios.modules.module import Module
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording
from sim.run import simulate
from tests.small import Play, cluster, scenario


def play(body: Callable[[Rank], Awaitable[None]], payload: Any = "sizes") -> Recording:
    return simulate(scenario(cluster(), library="nccl", payload=payload), Play(body))


def trains(model: Module, samples: int, width: int) -> Callable[[Rank], Awaitable[None]]:
    async def body(rank: Rank) -> None:
        own = model.on(rank)
        for step in range(2):
            with rank.step(step):
                loss = await own(torch.ones(samples, width, device=rank.device))
                await own.backward(loss)
                await own.update()

    return body
