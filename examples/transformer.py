"""A transformer over each user's history, then a tower with two tasks: data parallel, with Adam."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.scenario import Scenario
from scenarios.modules.module import Module
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank


@dataclass(frozen=True)
class Options:
    """The keys of `[options]`."""

    samples: int = 32
    history: int = 16
    width: int = 64
    layers: int = 2


class OverArch(nn.Module):
    """[samples, history, width] of pooled embeddings to the losses of two tasks."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        width = options.width
        block = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(block, options.layers, enable_nested_tensor=False)
        self.trunk = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU())
        self.click, self.watch = nn.Linear(2 * width, 1), nn.Linear(2 * width, 1)

    def forward(self, history: Tensor, clicked: Tensor, watched: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.trunk(self.encoder(history).mean(1))
        click = functional.binary_cross_entropy_with_logits(self.click(hidden).squeeze(1), clicked)
        return click, functional.mse_loss(self.watch(hidden).squeeze(1), watched)


class Train(Program):
    """Steps of forward, backward and update."""

    Options = Options

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.options = scenario, scenario.options
        self.host_classes = uniform_host_classes(scenario)
        self.model = Module(
            lambda: OverArch(self.options), scenario, name="over", optimizer=lambda own: torch.optim.Adam(own, 1e-3)
        )

    async def __call__(self, rank: Rank) -> None:
        model = self.model.on(rank)
        for step in range(self.scenario.steps):
            batch = self.draw(rank, step)
            await rank.barrier()
            with rank.step(step):
                click, watch = await model(*batch)
                await model.backward([click, watch])
                await model.update()
                rank.record("click", click)

    def draw(self, rank: Rank, step: int) -> list[Tensor]:
        """Return this rank's samples: histories and their outcomes."""
        drawn = torch.Generator().manual_seed(1000 * step + rank.rank)
        samples, history, width = self.options.samples, self.options.history, self.options.width
        shapes = [(samples, history, width), (samples,), (samples,)]
        return [torch.rand(shape, generator=drawn).to(rank.device) for shape in shapes]
