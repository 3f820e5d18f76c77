"""A program for ranks on emulated hosts, made by a function of a scenario."""

from __future__ import annotations

import torch

from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from tests.contract.scripts import Script

STEPS = 6
REDUCED_BYTES = 1 << 20


async def _reduces(rank: Rank) -> None:
    for index in range(STEPS):
        with rank.step(index):
            await rank.barrier(label="together")
            await rank.all_reduce(torch.ones(REDUCED_BYTES // 4), label="gradients")


def reduces(scenario: Scenario) -> Program:
    return Script(_reduces)
