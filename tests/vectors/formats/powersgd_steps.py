"""Trains the steps of a recorded PowerSGD case on a rank and keeps the results; `powersgd` checks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor

from scenarios.compression import PowerSGDState, batched_powersgd, layerwise_powersgd
from scenarios.compression.state import draw_normal
from scenarios.modules.ddp_buckets import GradientBucket
from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from tests.vectors.files import Case

ALGORITHMS = {"batched_powerSGD_hook": batched_powersgd, "powerSGD_hook": layerwise_powersgd}


class CountingState(PowerSGDState):
    """A state that counts the seeds it draws."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seeds = 0

    def next_seed(self) -> int:
        self.seeds += 1
        return super().next_seed()


class NotingRank:
    """A rank that keeps the values drawn on it."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self.draws: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rank, name)

    def for_role(self, role: str) -> NotingRank:
        made = NotingRank(self._rank.for_role(role))
        made.draws = self.draws
        return made

    def compute(self, kernel: Kernel, function: Callable[..., Any], *arguments: Any, **words: str) -> Work[Any]:
        return self._rank.compute(kernel, self._draw if function is draw_normal else function, *arguments, **words)

    def _draw(self, seed: int, targets: list[Tensor]) -> None:
        draw_normal(seed, targets)
        self.draws += [target.clone() for target in targets]


@dataclass
class Reduced:
    """The results of one bucket in one step of a rank."""

    output: Tensor
    seeds: int
    draws: list[Tensor]
    memory: dict[str, Tensor]


@dataclass
class Played:
    """The results of a case on a rank; `refusal` is the error of its state, or of one step more than was recorded."""

    steps: list[list[Reduced]] = field(default_factory=list)
    iters: list[tuple[int, int]] = field(default_factory=list)
    stats: tuple[float, int, int] | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Inputs:
    """A case with its gradients by (step, bucket), [ranks, elements] each."""

    case: Case
    gradients: dict[tuple[int, int], Tensor]

    def bucket(self, step: int, row: dict[str, Any], rank: int) -> GradientBucket:
        shapes = [tuple(self.case["param_shapes"][member]) for member in row["param_order"]]
        values = self.gradients[step, row["bucket"]][rank].clone()
        return GradientBucket(row["bucket"], values, shapes, is_last=row["is_last"])


async def train(rank: Rank, inputs: Inputs) -> Played:
    noting, played = NotingRank(rank), Played()
    try:
        state = CountingState(**inputs.case["state_kwargs"])
    except ValueError as error:
        played.refusal = str(error)
        return played
    for step, recorded in enumerate(inputs.case["steps"]):
        before = state.iter
        played.steps.append([await reduce(noting, state, inputs, step, row) for row in recorded["buckets"]])
        played.iters.append((before, state.iter))
    if inputs.case["error_shim213"]:
        played.refusal = await one_more(noting, state, inputs.case)
    played.stats = state.compression_stats()
    return played


async def reduce(rank: Any, state: CountingState, inputs: Inputs, step: int, row: dict[str, Any]) -> Reduced:
    rank.draws, seeds, index = [], state.seeds, row["bucket"]
    bucket = inputs.bucket(step, row, rank.rank)
    output = (await ALGORITHMS[inputs.case["hook"]](rank, state, bucket)).clone()
    kept = {"p": state.p_memory_dict, "q": state.q_memory_dict, "err": state.error_dict}
    memory = {name: by_bucket[index].clone() for name, by_bucket in kept.items() if index in by_bucket}
    return Reduced(output, state.seeds - seeds, rank.draws, memory)


async def one_more(rank: Any, state: CountingState, case: Case) -> str:
    """Return the error of one more step; "" if it succeeds."""
    shapes = [tuple(shape) for shape in case["param_shapes"]]
    ones = torch.ones(sum(map(prod, shapes)), dtype=getattr(torch, case["dtype"]))
    try:
        await ALGORITHMS[case["hook"]](rank, state, GradientBucket(0, ones, shapes, is_last=True))
    except ValueError as error:
        return str(error)
    return ""
