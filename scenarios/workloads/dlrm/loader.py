"""Provides a rank's batches, drawn before a step or by a data loader of some rate, and copies them to a GPU.

A real run draws batches on the host and copies them; on CPUs, and without values, a copy does nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from scenarios.config.scenario import Bag, Recommender, Scenario, Table
from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.roles import LOAD
from scenarios.seam.trace import COPYING, LOADING
from scenarios.sparse.expected import ExpectedJagged
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.workloads.dlrm.batches import Dense, draw_bags, draw_dense, draw_weights
from scenarios.workloads.dlrm.ids.counts import IdCounter
from scenarios.workloads.dlrm.sparse_part import Batch, Looked, SparsePass


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One micro-batch of a rank in a pipeline: `looked` after its exchange, `sparse` after its lookup.

    `is_last`: the last one of its step.
    """

    is_last: bool
    features: Batch
    dense: Dense
    looked: Sequence[Looked] = ()
    sparse: SparsePass | None = None


class Drawer:
    """A source of one rank's micro-batches by number, with the cost of copying each.

    Without values, ids are only counted. `expected` are the features of every rank, if they are not drawn.
    """

    def __init__(
        self,
        scenario: Scenario,
        rank: Rank,
        counter: IdCounter,
        expected: Mapping[Bag, ExpectedJagged] | None = None,
    ) -> None:
        self._scenario, self._workload = scenario, Recommender.of(scenario.workload)
        self._model, self._rank, self._counter, self._expected = self._workload.model, rank, counter, expected
        self._numbers = {table.name: number for number, table in enumerate(self._model.tables)}
        self._lengths_dtype: torch.dtype = getattr(torch, self._model.lengths_dtype)
        self._is_staged = scenario.copies_batches and rank.device.type == "cuda"
        host = torch.device("cpu")
        self._device = host if self._is_staged else rank.device
        self._control_device = host if self._is_staged else rank.control_device

    def draw(self, number: int) -> MicroBatch:
        """Draw this rank's micro-batch of that number."""
        dense = draw_dense(self._scenario, self._model, self._rank.rank, number, device=self._device)
        if self._expected is not None:
            features: Batch = self._expected
        elif self._device.type == "meta":
            dtypes = getattr(torch, self._model.ids_dtype), self._lengths_dtype
            features = {
                bag: self._counter.features(tables, self._rank.rank, number, weighted=bag == "weighted", dtypes=dtypes)
                for bag, tables in self._model.bags.items()
            }
        else:
            features = {bag: self._draw_ids(bag, tables, number) for bag, tables in self._model.bags.items()}
        count = self._workload.pipeline.accumulation
        drawn = MicroBatch(is_last=(number + 1) % count == 0, features=features, dense=dense)
        # Only copies from pinned memory run beside the host.
        return move_batch(drawn, Tensor.pin_memory) if self._is_staged else self._with_lengths(drawn)

    def copy(self, batch: MicroBatch) -> MicroBatch:
        """Copy a batch to the GPU, if it is not there."""
        if not self._is_staged:
            return batch
        return self._with_lengths(move_batch(batch, lambda tensor: tensor.to(self._rank.device, non_blocking=True)))

    def copy_kernel(self, batch: MicroBatch) -> Kernel:
        """Return the kernel of copying a batch: each tensor is copied from host memory by itself."""
        dense = (batch.dense.features, batch.dense.labels)
        size = float(sum(each.numel() * each.element_size() for each in dense))
        launches = len(dense)
        for features in batch.features.values():
            ids, lengths = float(sum(features.length_per_key())), len(features.keys) * (features.stride or 0)
            size += ids * features.values.element_size() + lengths * features.lengths.element_size()
            launches += 2
            if features.weights is not None:
                size += ids * features.weights.element_size()
                launches += 1
        return Kernel(kind=COPYING, host_read=size, bytes_written=size, launches=launches, dtype="")

    def _draw_ids(self, bag: Bag, tables: Sequence[Table], batch: int) -> KeyedJagged:
        scenario, rank, model = self._scenario, self._rank.rank, self._model
        keys, lengths, weights, counts, ids = [], [], [], list[int](), []
        each = (
            (self._numbers[table.name], place, one) for table in tables for place, one in enumerate(table.by_feature)
        )
        for number, place, feature in each:
            drawn = draw_bags(scenario, number, rank, batch, feature=place)
            keys.append(feature.name)
            ids.append(drawn.ids)
            lengths.append(drawn.lengths)
            counts.append(len(drawn.ids))
            if bag == "weighted":
                weights.append(draw_weights(scenario, number, rank, batch, counts[-1], feature=place))
        return KeyedJagged(
            keys=tuple(keys),
            values=torch.from_numpy(np.concatenate(ids, dtype=np.int64)).to(
                self._device, getattr(torch, model.ids_dtype)
            ),
            lengths=torch.from_numpy(np.concatenate(lengths, dtype=model.lengths_dtype)).to(self._control_device),
            weights=torch.from_numpy(np.concatenate(weights)).to(self._device) if weights else None,
            stride=scenario.run.batch_size,
            ids_per_key=tuple(counts),
        )

    def _with_lengths(self, batch: MicroBatch) -> MicroBatch:
        """Add the numbers of ids of each sequence's samples."""
        given, device = batch.features.get("sequence"), self._rank.device
        if given is None:
            return batch
        if device.type == "meta":
            lengths = [torch.empty(given.stride or 0, dtype=self._lengths_dtype, device=device) for _ in given.keys]
        else:
            lengths = list(given.lengths.view(len(given.keys), -1).to(device))
        return replace(batch, dense=replace(batch.dense, lengths=lengths))


class Batches:
    """The batches on which a rank trains; all ranks must make theirs at the same place in the order of their calls.

    Without a rate in `[data]` they are drawn between steps, in no simulated time. A data loader has a stream of its own
    and loads one batch after the other, `prefetch` batches ahead, and each step ends with a wait for it: a step takes
    at least as long as loading its batches. The run takes the first `taken` batches: only these are drawn, and only
    they and the one after them are loaded ahead.
    """

    def __init__(self, scenario: Scenario, drawer: Drawer, rank: Rank, taken: int) -> None:
        data = Recommender.of(scenario.workload).data
        self._drawer, self._taken, self._prefetch = drawer, taken, min(data.prefetch, taken + 1)
        self._cost: Kernel | None = None
        if data.samples_per_s is not None:
            self._rank, lasts_ns = rank.stream("loader"), round(1e9 * scenario.run.batch_size / data.samples_per_s)
            self._cost = Kernel(kind=LOADING, lasts_ns=max(1, lasts_ns), launches=0, dtype="")
        self._begun = 0
        self._ready: deque[MicroBatch] = deque()
        self._coming: deque[Work[MicroBatch | None]] = deque()

    async def fill(self, count: int) -> list[MicroBatch]:
        """Return the first `count` batches; wait until a loader has the one after them, too."""
        self.prepare(range(count))
        for _ in range(count + self._prefetch):
            self.begin()
        for _ in range(count + 1):
            await self.wait()
        return [self.take() for _ in range(count)]

    def prepare(self, numbers: range) -> None:
        """Draw the next batches, of these numbers, before a step, unless a loader does."""
        if self._cost is None:
            self._ready.extend(self._drawer.draw(number) for number in numbers)

    def begin(self) -> None:
        """Let a loader begin to load the next batch."""
        if self._cost is not None:
            self._coming.append(self._rank.spawn(self._load(self._cost, self._begun)))
            self._begun += 1

    async def wait(self) -> None:
        """Wait until a loader has the batch that was begun first."""
        if self._coming and (batch := await self._coming.popleft()) is not None:
            self._ready.append(batch)

    def take(self) -> MicroBatch:
        """Return the next batch."""
        return self._ready.popleft()

    async def close(self) -> None:
        """Wait for all batches that a loader has begun."""
        while self._coming:
            await self._coming.popleft()

    async def _load(self, cost: Kernel, number: int) -> MicroBatch | None:
        return await self._rank.compute(cost, self._draw, number, label="data.load", role=LOAD)

    def _draw(self, number: int) -> MicroBatch | None:
        """Draw the batch of that number; None if the run does not take it, which is loaded as in a longer run."""
        return self._drawer.draw(number) if number < self._taken else None


def move_batch(batch: MicroBatch, move: Callable[[Tensor], Tensor]) -> MicroBatch:
    """Return a drawn batch with all its tensors moved."""
    dense = replace(batch.dense, features=move(batch.dense.features), labels=move(batch.dense.labels))
    features = {
        bag: replace(
            given,
            values=move(given.values),
            lengths=move(given.lengths),
            weights=None if given.weights is None else move(given.weights),
        )
        for bag, given in batch.features.items()
        if isinstance(given, KeyedJagged)
    }
    return replace(batch, dense=dense, features=features)
