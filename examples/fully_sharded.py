"""Layers cut over all ranks as in FSDP: weights are gathered ahead of their use, gradients reduced and scattered."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.scenario import Scenario
from scenarios.modules.module import Module
from scenarios.seam.backend import Work
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank


@dataclass(frozen=True)
class Options:
    """The keys of `[options]`."""

    samples: int = 32
    width: int = 128
    layers: int = 4


def layer(x: Tensor, flat: Tensor) -> Tensor:
    """A layer and its residual; `flat` is its weight, a whole number of rows for each rank."""
    width = x.shape[1]
    return x + functional.gelu(functional.linear(x, flat[: width * width].view(width, width)))


def loss(x: Tensor) -> Tensor:
    """The loss of the last layer's output."""
    return x.square().mean()


class Train(Program):
    """Steps in which every layer's weight is whole only while it is used."""

    Options = Options

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.options = scenario, scenario.options
        self.host_classes = uniform_host_classes(scenario)
        self.layer = Module(lambda: layer, scenario, name="layer", reduce=False)
        self.loss = Module(lambda: loss, scenario, name="loss", reduce=False)

    async def __call__(self, rank: Rank) -> None:
        layer, loss, ahead = self.layer.on(rank), self.loss.on(rank), rank.stream("gather")
        size, width = rank.world_size, self.options.width
        shard = -(-width * width // size)
        drawn = torch.Generator().manual_seed(rank.rank)
        shards = [torch.randn(shard, generator=drawn).mul(0.01).to(rank.device) for _ in range(self.options.layers)]

        def gather(index: int) -> Work[Tensor]:
            whole = torch.empty(shard * size, device=rank.device)
            return ahead.all_gather_into_tensor(whole, shards[index], label="gather")

        for step in range(self.scenario.steps):
            x = torch.randn(self.options.samples, width, generator=drawn).to(rank.device)
            await rank.barrier()
            with rank.step(step):
                inputs, outputs, gathered = [], [], gather(0)
                for index in range(len(shards)):
                    weight = (await gathered).requires_grad_()
                    if index + 1 < len(shards):
                        gathered = gather(index + 1)  # while this layer computes
                    inputs.append((x.requires_grad_(), weight))
                    outputs.append(await layer(*inputs[-1]))
                    x = outputs[-1].detach()
                x.requires_grad_()
                value = await loss(x)
                await loss.backward(value)
                scattered: list[Work[Tensor]] = []
                for (given, weight), output in zip(reversed(inputs), reversed(outputs), strict=True):
                    await layer.backward(output, x.grad)
                    own = torch.empty(shard, device=rank.device)
                    scattered.append(ahead.reduce_scatter_tensor(own, weight.grad, label="scatter"))
                    x = given
                for mine, work in zip(reversed(shards), scattered, strict=True):
                    mine.sub_(await work, alpha=0.01 / size)
                rank.record("loss", value)
