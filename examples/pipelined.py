"""The next batch's features travel while this batch is trained on: an exchange that a pipeline hides."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.scenario import Scenario
from scenarios.modules.module import Module
from scenarios.seam.backend import Work
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank


@dataclass(frozen=True)
class Options:
    """The keys of `[options]`."""

    samples: int = 64
    width: int = 256


class Tower(nn.Module):
    """[samples, width] to a loss."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 1))

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features).square().mean()


class Train(Program):
    """Steps with one exchange ahead; the first fills the pipeline, the last drains it."""

    Options = Options

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.options = scenario, scenario.options
        self.host_classes = uniform_host_classes(scenario)
        width = self.options.width
        self.model = Module(
            lambda: Tower(width), scenario, name="tower", optimizer=lambda own: torch.optim.SGD(own, 0.01)
        )

    async def __call__(self, rank: Rank) -> None:
        model, ahead, steps = self.model.on(rank), rank.stream("features"), self.scenario.steps
        shape = self.options.samples, self.options.width

        def exchange(step: int) -> Work[Tensor]:
            drawn = torch.Generator().manual_seed(1000 * step + rank.rank)
            features = torch.rand(shape, generator=drawn).to(rank.device)
            return ahead.all_to_all_single(torch.empty_like(features), features, label="features")

        await rank.barrier()
        coming = None
        for step in range(steps):
            with rank.step(step):
                here = coming or exchange(step)
                coming = exchange(step + 1) if step + 1 < steps else None
                loss = await model(await here)
                await model.backward(loss)
                await model.update()
                rank.record("loss", loss)
