"""The order of a training loop: which stages of later batches run concurrently with the step of this one.

A stage that is n batches `ahead` works, during each (micro-)batch, on the n-th batch after it, and finishes by its end.
Before the first step, batches pass through the stages as far as that requires. All steps are in steady state: during
the last steps, stages work on batches that are never trained on, as if training continued.

The orders are those of TorchRec 1.8.0's pipelines (`torchrec.distributed.train_pipeline`), except that in
"prefetch_sparse_dist" each stage has a step of its own: the next batch's ids are exchanged during the forward pass, and
its rows are fetched during the backward pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scenarios.config.scenario import Recommender, Scenario
from scenarios.config.scenario.step import Ahead, StageName
from scenarios.seam.backend import Work
from scenarios.seam.rank import Rank
from scenarios.seam.roles import COPY
from scenarios.workloads.dlrm.loader import Batches, Drawer, MicroBatch
from scenarios.workloads.dlrm.sparse_part import SparsePart


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of work on a batch that is trained on `ahead` batches later; `is_beside`: on a stream of its own.

    `run` returns the new batch; the old one is unchanged, because a device may still use it.
    """

    ahead: int
    rank: Rank
    is_beside: bool
    run: Callable[[Rank, MicroBatch], Coroutine[Any, Any, MicroBatch]]


# Streams of stages that run beside the step.
_STREAMS: Mapping[StageName, str] = {"copy": "memcpy", "exchange": "data_dist", "fill": "prefetch"}


class Loop:
    """One rank's training loop: its steps, and the stages that run concurrently.

    `train(batch, between)` awaits `between` after the forward pass; `sync(step)` ends a step.
    """

    def __init__(
        self,
        scenario: Scenario,
        rank: Rank,
        drawer: Drawer,
        sparse: SparsePart,
        *,
        train: Callable[[MicroBatch, Callable[[], Awaitable[None]]], Awaitable[None]],
        sync: Callable[[int], Awaitable[None]],
    ) -> None:
        self._rank, self._drawer, self._sparse, self._train_on, self._sync = rank, drawer, sparse, train, sync
        self._copies, pipeline = scenario.copies_batches, Recommender.of(scenario.workload).pipeline
        self._micro_batches = pipeline.accumulation
        self._before, self._between = self._stages(pipeline.stages.before), self._stages(pipeline.stages.between)
        every = [*self._before, *self._between]
        self._filling = sorted(every, key=lambda stage: -stage.ahead)  # a batch passes stages further ahead first
        self._depth = max((stage.ahead for stage in every), default=0)
        taken = scenario.run.steps * self._micro_batches + self._depth
        self._loader = Batches(scenario, drawer, rank, taken)
        self._flight: list[MicroBatch] = []  # the first batch is the trained one
        self._begun: list[tuple[int, Work[MicroBatch]]] = []  # by index in `_flight`

    async def run(self, steps: range) -> None:
        """Fill the pipeline, train, and empty it; before each step ranks meet in a barrier outside it."""
        self._flight.extend(await self._loader.fill(self._depth))
        for stage in self._filling:
            for place in range(stage.ahead):
                self._flight[place] = await stage.run(stage.rank, self._flight[place])
        await self._settle()
        for step in steps:
            first = step * self._micro_batches + self._depth
            self._loader.prepare(range(first, first + self._micro_batches))
            await self._rank.barrier(label="start")
            with self._rank.step(step):
                for _ in range(self._micro_batches):
                    await self._train()
                await self._sync(step)
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
        await self._train_on(self._flight[0], partial(self._begin, self._between))
        for place, work in self._begun:
            self._flight[place] = await work
        self._begun = []
        await self._loader.wait()
        del self._flight[0]

    async def _begin(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            run = stage.run(stage.rank, self._flight[stage.ahead])
            if stage.is_beside:
                self._begun.append((stage.ahead, stage.rank.spawn(run)))
            else:
                self._flight[stage.ahead] = await run

    def _stages(self, chosen: Ahead) -> list[Stage]:
        return [self._stage(name, ahead) for name, ahead in chosen if self._copies or name != "copy"]

    def _stage(self, name: StageName, ahead: int) -> Stage:
        """Open a stage's stream; rows are looked up, and the trained batch is copied, on the main stream."""
        is_beside = name in _STREAMS and (name, ahead) != ("copy", 0)
        rank = self._rank.stream(_STREAMS[name]) if is_beside else self._rank
        if name == "exchange":
            rank = self._sparse.on_sharding_group(rank)
        runs = {"copy": self._copy, "exchange": self._exchange, "fill": self._fill, "look_up": self._look_up}
        return Stage(ahead, rank, is_beside, runs[name])

    async def _copy(self, rank: Rank, batch: MicroBatch) -> MicroBatch:
        """Copy a batch from host memory to the GPU; on the main stream like `batch.to(device)`."""
        drawer = self._drawer
        return await rank.compute(drawer.copy_kernel(batch), drawer.copy, batch, label="data.copy", role=COPY)

    async def _exchange(self, rank: Rank, batch: MicroBatch) -> MicroBatch:
        """Send ids to the ranks that look them up."""
        looked = await self._sparse.exchange(rank, batch.features)
        return replace(batch, features={}, looked=looked)

    async def _fill(self, rank: Rank, batch: MicroBatch) -> MicroBatch:
        """Fetch the rows that caches miss."""
        await self._sparse.fill(rank, batch.looked)
        return batch

    async def _look_up(self, _: Rank, batch: MicroBatch) -> MicroBatch:
        """Look up rows and begin to send them home."""
        sparse = self._sparse.forward(batch.features, batch.looked, is_last=batch.is_last)
        await sparse.look_up()
        return replace(batch, sparse=sparse)
