"""A tower of equal layers, each sharded over all ranks as with torch's fully_shard, with AdamW."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.scenario import DenseParallel, Scenario
from scenarios.modules.module import Module
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank


@dataclass(frozen=True)
class Options:
    """The keys of `[options]`."""

    samples: int = 32
    width: int = 128
    layers: int = 4


class Tower(nn.Module):
    """Layers with residuals, then the loss; each layer is gathered by itself."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(options.width, options.width) for _ in range(options.layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + functional.gelu(layer(x))
        return x.square().mean()


class Train(Program):
    """Steps of forward, backward and update."""

    Options = Options

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.options = scenario, scenario.options
        self.host_classes = uniform_host_classes(scenario)
        self.model = Module(
            lambda: Tower(self.options),
            scenario,
            name="tower",
            optimizer=torch.optim.AdamW,
            parallel=DenseParallel(kind="fsdp"),
        )

    async def __call__(self, rank: Rank) -> None:
        model, drawn = self.model.on(rank), torch.Generator().manual_seed(rank.rank)
        for step in range(self.scenario.steps):
            x = torch.randn(self.options.samples, self.options.width, generator=drawn).to(rank.device)
            await rank.barrier()
            with rank.step(step):
                loss = await model(x)
                await model.backward(loss)
                await model.update()
                rank.record("loss", loss)
