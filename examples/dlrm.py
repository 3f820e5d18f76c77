"""A DLRM as one plain module, embedding tables and all, data parallel."""

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

    samples: int = 256
    tables: int = 8
    rows: int = 1000
    width: int = 16


class Dlrm(nn.Module):
    """[samples, 13] of dense features and [samples, tables, 2] of ids to the loss."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        count, width = options.tables + 1, options.width
        self.tables = nn.ModuleList(nn.EmbeddingBag(options.rows, width, mode="sum") for _ in range(options.tables))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + count * (count - 1) // 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, ids: Tensor, label: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        pooled = [table(each) for table, each in zip(self.tables, ids.unbind(1), strict=True)]
        features = torch.stack([bottom, *pooled], 1)
        row, column = torch.tril_indices(features.shape[1], features.shape[1], -1, device=dense.device)
        pairs = torch.bmm(features, features.transpose(1, 2))[:, row, column]
        return functional.binary_cross_entropy_with_logits(self.top(torch.cat([bottom, pairs], 1)).squeeze(1), label)


class Train(Program):
    """Steps of forward, backward and update."""

    Options = Options

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.options = scenario, scenario.options
        self.host_classes = uniform_host_classes(scenario)
        self.model = Module(lambda: Dlrm(self.options), scenario, optimizer=lambda own: torch.optim.Adagrad(own, 0.01))

    async def __call__(self, rank: Rank) -> None:
        model, options = self.model.on(rank), self.options
        for step in range(self.scenario.steps):
            drawn = torch.Generator().manual_seed(1000 * step + rank.rank)
            dense = torch.rand(options.samples, 13, generator=drawn).to(rank.device)
            ids = torch.randint(0, options.rows, (options.samples, options.tables, 2), generator=drawn).to(rank.device)
            label = torch.rand(options.samples, generator=drawn).to(rank.device)
            await rank.barrier()
            with rank.step(step):
                loss = await model(dense, ids, label)
                await model.backward(loss)
                await model.update()
                rank.record("loss", loss)
