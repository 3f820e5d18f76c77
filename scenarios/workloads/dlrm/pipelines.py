"""The order of a training loop: which stages of coming batches go on beside the step of this one.

A stage that is n batches `ahead` works, in each (micro-)batch's time, on the n-th after it, and is over at its end.
Before the first step batches go through the stages as far as that needs. All steps are of the steady state: beside the
last ones stages work on batches that nobody will train on, as if training went on.

The orders are those of TorchRec 1.8.0's pipelines (`torchrec.distributed.train_pipeline`), except that in
"prefetch_sparse_dist" each stage has a step of its own: there the next batch's ids travel beside the forward pass, and
its rows are fetched beside the backward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from scenarios.config.scenario import Recommender, Scenario
from scenarios.config.scenario.step import STAGES, Ahead, StageName
from scenarios.seam.backend import Work
from scenarios.seam.rank import Rank
from scenarios.seam.roles import COPY
from scenarios.workloads.dlrm.loader import Drawer, MicroBatch, loader_of
from scenarios.workloads.dlrm.sparse_part import SparsePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a loop is made of: one rank's batches, its tables, and the passes over one batch.

    `train(batch, between)` awaits `between` after the forward pass; `sync(step)` ends a step.
    """

    scenario: Scenario
    rank: Rank
    drawer: Drawer
    sparse: SparsePart
    train: Callable[[MicroBatch, Callable[[], Awaitable[None]]], Awaitable[None]]
    sync: Callable[[int], Awaitable[None]]


class Stage(ABC):
    """What is done with a batch before it is trained on."""

    stream: ClassVar[str]

    def __init__(self, parts: Parts, ahead: int) -> None:
        self.parts, self.ahead = parts, ahead
        self.rank = self._opened()

    @property
    def is_beside(self) -> bool:
        """Whether it is on a stream of its own."""
        return self.stream != "main"

    @abstractmethod
    async def run(self, batch: MicroBatch) -> MicroBatch:
        """Do it: what becomes of the batch, which itself stays as it is while a device uses it."""

    def _opened(self) -> Rank:
        return self.parts.rank.stream(self.stream)


class ExchangeIds(Stage):
    """Ids go to the ranks that look them up."""

    stream = "data_dist"

    def _opened(self) -> Rank:
        return self.parts.sparse.sharded(super()._opened())

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """See `Stage`."""
        looked = await self.parts.sparse.exchange(self.rank, batch.features)
        return replace(batch, features={}, looked=looked)


class Fill(Stage):
    """Rows that caches miss are fetched."""

    stream = "prefetch"

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """See `Stage`."""
        await self.parts.sparse.fill(self.rank, batch.looked)
        return batch


class CopyToGpu(Stage):
    """A batch goes from the host's memory to the GPU."""

    stream = "memcpy"

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """See `Stage`."""
        drawer = self.parts.drawer
        return await self.rank.compute(drawer.copy_kernel(batch), drawer.copy, batch, label="data.copy", role=COPY)


class CopyHere(CopyToGpu):
    """A batch goes to the GPU right before its forward pass, on the main stream, as `batch.to(device)` does it."""

    stream = "main"

    def _opened(self) -> Rank:
        return self.parts.rank


class LookUp(Stage):
    """Rows are looked up, and are on their way home when this returns."""

    stream = "main"

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """See `Stage`."""
        sparse = self.parts.sparse.forward(batch.features, batch.looked, is_last=batch.is_last)
        await sparse.look_up()
        return replace(batch, sparse=sparse)

    def _opened(self) -> Rank:
        return self.parts.rank


_CLASSES: Mapping[StageName, type[Stage]] = {
    "copy": CopyToGpu,
    "exchange": ExchangeIds,
    "fill": Fill,
    "look_up": LookUp,
}


class Loop:
    """One rank's training loop: its steps, and what goes on beside them."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._rank = parts, parts.rank
        pipeline = Recommender.of(parts.scenario.workload).pipeline
        self._micro_batches = pipeline.accumulation
        stages = STAGES[pipeline.kind]
        self._before, self._between = self._stages(stages.before), self._stages(stages.between)
        every = [*self._before, *self._between]
        self._filling = sorted(every, key=lambda stage: -stage.ahead)  # a batch passes those further ahead first
        self._depth = max((stage.ahead for stage in every), default=0)
        taken = parts.scenario.steps * self._micro_batches + self._depth
        self._loader = loader_of(parts.scenario, parts.drawer, parts.rank, taken)
        self._flight: list[MicroBatch] = []  # the first one is trained on
        self._begun: list[tuple[int, Work[MicroBatch]]] = []  # by place there

    async def run(self, steps: range) -> None:
        """Fill the pipeline, train, and empty it. Between steps the ranks meet in a barrier, which belongs to none."""
        self._flight.extend(await self._loader.fill(self._depth))
        for stage in self._filling:
            for place in range(stage.ahead):
                self._flight[place] = await stage.run(self._flight[place])
        await self._settle()
        for step in steps:
            first = step * self._micro_batches + self._depth
            self._loader.prepare(range(first, first + self._micro_batches))
            await self._rank.barrier(label="start")
            with self._rank.step(step):
                for _ in range(self._micro_batches):
                    await self._train()
                await self._parts.sync(step)
        await self._settle()
        await self._loader.close()

    async def _settle(self) -> None:
        for batch in self._flight:
            if batch.sparse is not None:
                await batch.sparse.settle()

    async def _train(self) -> None:
        """One micro-batch, and a stage's worth of each of those behind it."""
        self._flight.append(self._loader.take())
        self._loader.begin()
        await self._begin(self._before)
        await self._parts.train(self._flight[0], partial(self._begin, self._between))
        for place, work in self._begun:
            self._flight[place] = await work
        self._begun = []
        await self._loader.wait()
        del self._flight[0]

    async def _begin(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            run = stage.run(self._flight[stage.ahead])
            if stage.is_beside:
                self._begun.append((stage.ahead, stage.rank.spawn(run)))
            else:
                self._flight[stage.ahead] = await run

    def _stages(self, chosen: Ahead) -> list[Stage]:
        copies = self._parts.scenario.copies_batches
        return [self._stage(name, ahead) for name, ahead in chosen if copies or name != "copy"]

    def _stage(self, name: StageName, ahead: int) -> Stage:
        return CopyHere(self._parts, 0) if name == "copy" and not ahead else _CLASSES[name](self._parts, ahead)
