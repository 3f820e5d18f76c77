"""A mixture of experts, one a rank: samples travel to the expert that they are routed to, and back; unevenly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.scenario import Scenario
from scenarios.modules.module import Module
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank


@dataclass(frozen=True)
class Options:
    """The keys of `[options]`; `skew` is the exponent of the experts' popularity."""

    samples: int = 128
    width: int = 64
    skew: float = 1.0


class Expert(nn.Module):
    """[any number of samples, width] to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def loss(mixed: Tensor) -> Tensor:
    """Return the loss of the experts' answers."""
    return functional.softplus(mixed).mean()


class Train(Program):
    """Steps of: send samples to experts, answers back, gradients the same two ways."""

    Options = Options

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.options = scenario, scenario.options
        width = self.options.width
        self.expert = Module(  # of each rank's own: not reduced over ranks
            lambda: Expert(width),
            scenario,
            name="expert",
            reduce=False,
            optimizer=lambda own: torch.optim.SGD(own, 0.01),
        )
        self.loss = Module(lambda: loss, scenario, name="loss", reduce=False)

    async def __call__(self, rank: Rank) -> None:
        expert, loss = self.expert.on(rank), self.loss.on(rank)
        for step in range(self.scenario.steps):
            x, sent = self.draw(rank, step)
            await rank.barrier()
            with rank.step(step):
                counts = await rank.all_to_all_single(torch.empty_like(sent), sent, label="counts")
                there, back = sent.tolist(), counts.tolist()
                routed = (await self.exchange(rank, x, there, back)).requires_grad_()
                answers = await expert(routed)
                mixed = (await self.exchange(rank, answers, back, there)).requires_grad_()
                value = await loss(mixed)
                await loss.backward(value)
                await expert.backward(answers, await self.exchange(rank, mixed.grad, there, back))
                await self.exchange(rank, routed.grad, back, there)
                await expert.update()
                rank.record("loss", value)

    async def exchange(self, rank: Rank, rows: Tensor, out: list[int], into: list[int]) -> Tensor:
        """Rows to their ranks, in order of ranks."""
        received = torch.empty(sum(into), rows.shape[1], device=rank.device)
        return await rank.all_to_all_single(received, rows, into, out, label="samples")

    def draw(self, rank: Rank, step: int) -> tuple[Tensor, Tensor]:
        """Return samples by expert, and how many each expert gets, on the control device, because they decide sizes."""
        drawn = torch.Generator().manual_seed(1000 * step + rank.rank)
        popular = torch.arange(1, rank.world_size + 1, dtype=torch.float64) ** -self.options.skew
        chosen = torch.multinomial(popular, self.options.samples, replacement=True, generator=drawn)
        counts = torch.bincount(chosen, minlength=rank.world_size).to(rank.control_device)
        return torch.randn(self.options.samples, self.options.width, generator=drawn).to(rank.device), counts
