"""The order of a training loop: which stages of later batches run concurrently with the step of this one.

A stage that is n batches `ahead` works, during each (micro-)batch, on the n-th batch after it, and finishes by its end.
Before the first step, batches pass through the stages as far as that requires. All steps are in steady state: during
the last steps, stages work on batches that are never trained on, as if training continued.

The orders are those of TorchRec 1.8.0's pipelines (`torchrec.distributed.train_pipeline`), except that in
"prefetch_sparse_dist" each stage has a step of its own: the next batch's ids are exchanged during the forward pass, and
its rows are fetched during the backward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from scenarios.config.scenario import Recommender, Scenario
from scenarios.config.scenario.step import Ahead, StageName
from scenarios.seam.backend import Work
from scenarios.seam.rank import Rank
from scenarios.seam.roles import COPY
from scenarios.workloads.dlrm.loader import Drawer, MicroBatch, loader_of
from scenarios.workloads.dlrm.sparse_part import SparsePart


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a training loop: one rank's batches, its tables, and the passes over one batch.

    `train(batch, between)` awaits `between` after the forward pass; `sync(step)` ends a step.
    """

    scenario: Scenario
    rank: Rank
    drawer: Drawer
    sparse: SparsePart
    train: Callable[[MicroBatch, Callable[[], Awaitable[None]]], Awaitable[None]]
    sync: Callable[[int], Awaitable[None]]


class Stage(ABC):
    """A stage of work on a batch before it is trained on."""

    stream: ClassVar[str]

    def __init__(self, parts: Parts, ahead: int) -> None:
        self.parts, self.ahead = parts, ahead
        self.rank = self._open()

    @property
    def is_beside(self) -> bool:
        """Whether the stage runs on a stream of its own."""
        return self.stream != "main"

    @abstractmethod
    async def run(self, batch: MicroBatch) -> MicroBatch:
        """Run the stage and return the new batch; the old one is unchanged, because a device may still use it."""

    def _open(self) -> Rank:
        return self.parts.rank.stream(self.stream)


class ExchangeIds(Stage):
    """A stage that sends ids to the ranks that look them up."""

    stream = "data_dist"

    def _open(self) -> Rank:
        return self.parts.sparse.on_sharding_group(super()._open())

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """Exchange the batch's ids."""
        looked = await self.parts.sparse.exchange(self.rank, batch.features)
        return replace(batch, features={}, looked=looked)


class Fill(Stage):
    """A stage that fetches the rows that caches miss."""

    stream = "prefetch"

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """Fill the caches with the batch's rows."""
        await self.parts.sparse.fill(self.rank, batch.looked)
        return batch


class CopyToGpu(Stage):
    """A stage that copies a batch from host memory to the GPU."""

    stream = "memcpy"

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """Copy the batch to the GPU."""
        drawer = self.parts.drawer
        return await self.rank.compute(drawer.copy_kernel(batch), drawer.copy, batch, label="data.copy", role=COPY)


class CopyHere(CopyToGpu):
    """A stage that copies a batch right before its forward pass, on the main stream, like `batch.to(device)`."""

    stream = "main"

    def _open(self) -> Rank:
        return self.parts.rank


class LookUp(Stage):
    """A stage that looks up rows and begins to send them home."""

    stream = "main"

    async def run(self, batch: MicroBatch) -> MicroBatch:
        """Look up the batch's rows."""
        sparse = self.parts.sparse.forward(batch.features, batch.looked, is_last=batch.is_last)
        await sparse.look_up()
        return replace(batch, sparse=sparse)

    def _open(self) -> Rank:
        return self.parts.rank


_CLASSES: Mapping[StageName, type[Stage]] = {
    "copy": CopyToGpu,
    "exchange": ExchangeIds,
    "fill": Fill,
    "look_up": LookUp,
}


class Loop:
    """One rank's training loop: its steps, and the stages that run concurrently."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._rank = parts, parts.rank
        pipeline = Recommender.of(parts.scenario.workload).pipeline
        self._micro_batches = pipeline.accumulation
        self._before, self._between = self._stages(pipeline.stages.before), self._stages(pipeline.stages.between)
        every = [*self._before, *self._between]
        self._filling = sorted(every, key=lambda stage: -stage.ahead)  # a batch passes stages further ahead first
        self._depth = max((stage.ahead for stage in every), default=0)
        taken = parts.scenario.run.steps * self._micro_batches + self._depth
        self._loader = loader_of(parts.scenario, parts.drawer, parts.rank, taken)
        self._flight: list[MicroBatch] = []  # the first batch is the trained one
        self._begun: list[tuple[int, Work[MicroBatch]]] = []  # by index in `_flight`

    async def run(self, steps: range) -> None:
        """Fill the pipeline, train, and empty it; before each step ranks meet in a barrier outside it."""
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
        """Train on the oldest batch in the pipeline, while each later batch advances by one stage."""
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
