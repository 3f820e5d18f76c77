"""One rank's tables in a step: sends ids to the rows' owners, rows home and gradients back, and updates rows.

Rows and gradients are sent on the stream "embeddings", in the order "overlapped" as early as possible. The order
"eager" runs the sparse part when the dense part first uses any of it, and lets the backward pass wait there until
gradients are exchanged and rows updated, the last group first, as autograd runs TorchRec 1.8.0's modules. Rows are
detached from autograd's graph in "semi_sync", and gradients exchanged after the dense part's backward pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.config.scenario import Bag, Recommender, Scenario
from scenarios.modules.replica import Replica
from scenarios.seam.backend import Done, Work
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import Kernel, elementwise, together
from scenarios.seam.rank import Rank
from scenarios.seam.roles import CACHING, GRADIENTS, LOOKUP, OPTIMIZER, REPLICAS, SCALING, TABLE_REDUCTION, UPDATE
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged, exchange_expected
from scenarios.sparse.feature_exchange import exchange_features
from scenarios.sparse.groups import ShardedGroup
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.sparse.sequences import SequenceGroup
from scenarios.workloads.dlrm.tables.embedding import Rows
from scenarios.workloads.dlrm.tables.prices import Features, PricedPiece, sizes_of
from scenarios.workloads.dlrm.tables.shard_price import prices_of
from scenarios.workloads.sharding_groups import replicas_of, within_sharding_group

Group = ShardedGroup | SequenceGroup

# Host work of TorchRec 1.8's Python for one sharded module and one group of its tables, besides operators, by the
# launches that follow: counted in a step of a script that trains its DLRM (26 tables, one group).
_EXCHANGES_IDS = HostWork(dispatches=9, operators=1, calls=216)
_LOOKS_UP = HostWork(dispatches=25, operators=2, bags=1, calls=419)  # until the rows are sent home
_SENDS_BACK = HostWork(dispatches=28, operators=1, nodes=3)
_UPDATES = HostWork(operators=1, bags=1)
Batch = Mapping[Bag, Features]
# Pipelines that look up, or fetch, a batch's rows before those of the previous batch are updated.
_LOOKING_AHEAD = ("prefetch_sparse_dist", "semi_sync")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedTables:
    """All tables as groups, with the kind of bag of each group; `expected` are input exchanges of expected sizes."""

    groups: tuple[Group, ...]
    bags: tuple[Bag, ...]
    expected: tuple[ExpectedInput, ...] = ()


@dataclass(slots=True)
class Looked:
    """The state that one group's lookup leaves for its backward pass."""

    group: Group
    rows: Rows
    features: Features
    way: Any  # what the group's output exchange needs of its input exchange

    def of(self, rank: Rank) -> Rank:
        """Return the rank for operations on the group's tables."""
        return rank.for_tables(self.group.sharding_type)

    @property
    def is_copy(self) -> bool:
        """Whether every rank holds these tables whole."""
        return self.group.sharding_type.is_copied


class SparsePart:
    """One rank's rows of all groups.

    `fuses`: operators of the `dense` part are fused; `joins_dense`: copies' gradients are all-reduced with its own.
    """

    def __init__(
        self,
        scenario: Scenario,
        placed: GroupedTables,
        rank: Rank,
        *,
        dense: Replica,
        fuses: bool,
        joins_dense: bool = False,
    ) -> None:
        self._dense = dense
        workload = Recommender.of(scenario.workload)
        self.placed, self.rank, self.model = placed, rank, workload.model
        self._pipeline, self._replication = workload.pipeline, workload.replication
        self.is_eager = self._pipeline.order == "eager"
        self.joins_dense = joins_dense
        self.is_semi_sync = self._pipeline.kind == "semi_sync"
        self.here, self._side = self.on_sharding_group(rank), self.on_sharding_group(rank.stream("embeddings"))
        self._replicas = replicas_of(rank, self._replication)
        self._fused_label = "input_dist" if self._pipeline.exchanged_ahead else ""
        for group in placed.groups:
            group.codecs.load(rank.device)
        self._fuses, self._seed, self._scenario = fuses, scenario.run.seed, scenario
        self._rows = [self._rows_of(group) for group in placed.groups]
        self._sums: dict[Rows, Tensor] = {}  # gradients of copies, from micro-batches that were not the last

    def on_sharding_group(self, rank: Rank) -> Rank:
        """Return the rank, on its stream, within its sharding group; all ranks must call this in the same order."""
        return within_sharding_group(rank, self._replication)

    def forward(self, batch: Batch | None = None, looked: Sequence[Looked] = (), *, is_last: bool = True) -> SparsePass:
        """Return a pass over a batch, or over the result of its `exchange`; `is_last`: the step's last micro-batch."""
        return SparsePass(self, batch, looked, is_last=is_last)

    async def exchange(self, rank: Rank, batch: Batch, chosen: Sequence[int] | None = None) -> list[Looked]:
        """Send ids to the ranks that look them up, for all groups (or the chosen ones) at once."""
        rank.host_work(_EXCHANGES_IDS)
        numbers = range(len(self.placed.groups)) if chosen is None else chosen
        groups = [self.placed.groups[number] for number in numbers]
        taken = [batch[self.placed.bags[number]] for number in numbers]
        arrived: list[tuple[Features, Any]]
        expected = [features for features in taken if isinstance(features, ExpectedJagged)]
        if expected:
            exchanges = [self.placed.expected[number] for number in numbers]
            pairs = list(zip(exchanges, expected, strict=True))
            found = await exchange_expected(rank, pairs, fused_label=self._fused_label)
            arrived = [
                (here, group.expected_way(rank, given, exchange))
                for group, given, exchange, here in zip(groups, expected, exchanges, found, strict=True)
            ]
        else:
            prepare = [
                partial(group.prepare, rank, features)
                for group, features in zip(groups, taken, strict=True)
                if isinstance(features, KeyedJagged)
            ]
            exchanged = await exchange_features(rank, prepare, fused_label=self._fused_label)
            arrived = [
                (here, group.way(rank, sent, here)) for group, (sent, here) in zip(groups, exchanged, strict=True)
            ]
        return [
            Looked(group, self._rows[number], *one) for number, group, one in zip(numbers, groups, arrived, strict=True)
        ]

    async def fill(self, rank: Rank, looked: Sequence[Looked]) -> None:
        """Fetch the rows that caches miss, before they are looked up."""
        for one in looked:
            if one.rows.prices.cache is not None:
                kernel, label = partial(one.rows.prices.fill_kernel, sizes_of(one.features)), f"{one.group.label}cache"
                await one.of(rank).compute(kernel, one.rows.fill, one.features, label=label, role=CACHING)

    async def look_up(self, looked: Looked) -> Work[Tensor]:
        """Look up rows, and begin to send them home."""
        if self._pipeline.kind != "prefetch_sparse_dist":
            await self.fill(self.rank, [looked])
        features, rows, label = looked.features, looked.rows, f"{looked.group.label}lookup"
        self.rank.host_work(_LOOKS_UP)
        kernel = partial(rows.prices.look_up_kernel, sizes_of(features))
        found = await looked.of(self.rank).compute(kernel, rows.look_up, features, label=label, role=LOOKUP)
        return self._side.spawn(looked.group.forward(looked.of(self._side), found, looked.way))

    async def send_back(self, looked: Looked, gradient: Tensor, *, is_last: bool) -> Work[Tensor] | None:
        """Begin to send a group's gradients to the rows' owners, or to all-reduce those of copies once a step.

        Gradients of copies that join the dense part's are returned, not yet reduced.
        """
        self.rank.host_work(_SENDS_BACK)
        cost = self._if_launched(elementwise(gradient.numel(), dtype=self.model.dtype))
        label, size = f"{looked.group.label}gradients", (self.rank if looked.is_copy else self.here).world_size
        share, rank = gradient, looked.of(self.rank)
        if self.model.loss_scaling is not None:
            scaling, own = self._unscaling(gradient), f"{looked.group.label}unscale"
            share = await rank.compute(scaling, self._unscale, gradient, label=own, role=SCALING)
        if not looked.group.averages:
            role = TABLE_REDUCTION if looked.is_copy else GRADIENTS
            share = await rank.compute(cost, _divide, share, size, label=label, role=role)
        if not looked.is_copy:
            return self._side.spawn(looked.group.backward(looked.of(self._side), share, looked.way))
        if isinstance(looked.group, SequenceGroup):
            share = await looked.group.backward(rank, share, looked.way)
        flat = await self._add_up(looked, share)
        if not is_last:
            self._sums[looked.rows] = flat
            return None
        if self.joins_dense:
            return await self._as_dense(looked, flat)
        return rank.all_reduce(flat, label=f"{looked.group.label}all_reduce", role=TABLE_REDUCTION)

    def _unscaling(self, gradient: Tensor) -> Kernel:
        """Return the kernel of unscaling: a product and a check of each number, as in a hook on the tables' output."""
        once = elementwise(gradient.numel(), dtype=self.model.dtype)
        return self._if_launched(together([once, once]))

    def _if_launched(self, cost: Kernel) -> Kernel:
        """Return the cost of a pass over gradients: nothing if a compiler fuses it with the operator before."""
        return Kernel(kind="elementwise", dtype=cost.dtype, launches=0) if self._fuses else cost

    def _unscale(self, gradient: Tensor) -> Tensor:
        """Divide by the losses' scale, replacing non-finite numbers by 0: rows are updated before ranks check them."""
        scaler = self._dense.scaler
        if scaler is None:
            return gradient
        return torch.nan_to_num(gradient * (1 / scaler.scale), nan=0.0, posinf=0.0, neginf=0.0)

    async def update(self, looked: Looked, gradient: Tensor) -> None:
        """Run one optimizer step on a group's rows here, with the result of `send_back`."""
        rows, rank, label = looked.rows, looked.of(self.rank), f"{looked.group.label}update"
        rank.host_work(_UPDATES)
        if looked.is_copy:
            cost = rows.prices.dense_update_kernel
            await rank.compute(cost, rows.update_dense, gradient, label=label, role=OPTIMIZER)
        else:
            kernel = partial(rows.prices.update_kernel, sizes_of(looked.features))
            await rank.compute(kernel, rows.update, looked.features, gradient, label=label, role=UPDATE)

    async def sync(self) -> None:
        """Average shards over their replicas, then their optimizer state, like TorchRec's DMPCollection.sync.

        Each dtype needs one call. Copied tables need none: their gradients are averaged over all ranks.
        """
        assert self._replicas is not None, "there is replication"
        pairs = zip(self.placed.groups, self._rows, strict=True)
        sharded = [rows for group, rows in pairs if not group.sharding_type.is_copied]
        weights = [each for rows in sharded for each in rows.weights]
        for what, tensors in ("weights", weights), ("state", [each for rows in sharded for each in rows.states]):
            for dtype in dict.fromkeys(each.dtype for each in tensors if each.numel()):
                alike = [each for each in tensors if each.dtype == dtype and each.numel()]
                await self.rank.all_reduce_coalesced(
                    alike, ReduceOp.AVG, self._replicas, label=f"sync.{what}", role=REPLICAS
                )

    async def _add_up(self, looked: Looked, gradient: Tensor) -> Tensor:
        """Return the gradients of a group's copied tables, summed over this step's micro-batches so far."""
        rows, given, label, rank = looked.rows, looked.features, looked.group.label, looked.of(self.rank)
        kernel = partial(rows.prices.dense_gradients_kernel, sizes_of(given))
        flat = await rank.compute(kernel, rows.dense_gradients, given, gradient, label=f"{label}gradients", role=UPDATE)
        before = self._sums.pop(rows, None)
        if before is None:
            return flat
        cost = elementwise(flat.numel(), dtype=self.model.embedding_dtype, inputs=2)
        return await rank.compute(cost, before.add_, flat, label=f"{label}accumulate")

    async def _as_dense(self, looked: Looked, flat: Tensor) -> Work[Tensor]:
        """Cast gradients to the dense part's dtype, so that one call reduces both."""
        dtype: torch.dtype = getattr(torch, self.model.dtype)
        if flat.dtype == dtype:
            return Done(flat)
        cost = Kernel(
            kind="elementwise",
            bytes_read=float(flat.numel() * flat.element_size()),
            bytes_written=float(flat.numel() * dtype.itemsize),
            dtype=self.model.embedding_dtype,
        )
        return looked.of(self.rank).compute(self._if_launched(cost), flat.to, dtype, label=f"{looked.group.label}cast")

    def _rows_of(self, group: Group) -> Rows:
        numbers = {table.name: number for number, table in enumerate(self.model.tables)}
        pieces = [
            PricedPiece(
                table=numbers[part.table],
                rows=range(part.row_offset, part.row_offset + part.rows),
                columns=range(part.column_offset, part.column_offset + part.columns),
                kernel=self._scenario.kernel_of(self.model.tables[numbers[part.table]]),
                keys=len(list(by_feature)),
            )
            for part, by_feature in groupby(group.lookups(self.here.place))
        ]
        is_fbgemms = not self._scenario.workload.launching.fusion
        prices = prices_of(pieces, self._scenario, unpooled=isinstance(group, SequenceGroup), is_fbgemms=is_fbgemms)
        is_copy, ahead = group.sharding_type.is_copied, self._pipeline.kind in _LOOKING_AHEAD
        return Rows(prices, self._seed, self.rank.device, is_copy=is_copy, looks_ahead=ahead)


class SparsePass:
    """The sparse part of one step, or of one micro-batch."""

    def __init__(self, part: SparsePart, batch: Batch | None, looked: Sequence[Looked], *, is_last: bool) -> None:
        self._part, self._batch, self._looked, self._is_last = part, batch, list(looked), is_last
        self._coming: list[Work[Tensor]] = []
        self._gradients: dict[int, Tensor] = {}
        self._returning: list[tuple[Looked, Work[Tensor]]] = []
        self._joining: list[tuple[Looked, Tensor]] = []

    async def begin(self) -> None:
        """Begin exchange and lookup before the dense part, in the order "overlapped"."""
        if not self._part.is_eager and not self._coming:
            await self.look_up()

    def output(self, number: int) -> Awaitable[Tensor]:
        """Return an awaitable of a group's output."""
        return _GroupOutput(self, number)

    async def arrive(self, number: int) -> Tensor:
        """Return the output of group `number` after its exchange, looking rows up first if that was not done."""
        if not self._coming:
            await self.look_up()
        return await self._coming[number]

    async def give(self, number: int, gradient: Tensor) -> None:
        """Take the gradient of a group's output; send it back now, or if eager, all of them after the last has come."""
        if not self._part.is_eager:
            await self._send_back(number, gradient)
            return
        self._gradients[number] = gradient
        if len(self._gradients) == len(self._looked) and not self._part.is_semi_sync:
            await self._return_all()

    async def finish(self) -> None:
        """Send the remaining gradients, and update all remaining rows, copies last."""
        await self._return_all()
        await self._update(copies=False)
        await self._update(copies=True)

    async def joining(self) -> list[Tensor]:
        """Return gradients of copies, to be all-reduced in place with the dense part's after its backward pass."""
        await self._send_all(copies=True)
        return [gradient for _, gradient in self._joining]

    async def update_joined(self) -> None:
        """Update the copies of `joining`, after the all-reduce."""
        for looked, gradient in self._joining:
            await self._part.update(looked, gradient)

    async def look_up(self) -> None:
        """Exchange ids, if that was not done, look rows up, and begin to send them home."""
        part = self._part
        if self._looked:
            self._coming = [await part.look_up(one) for one in self._looked]
            return
        assert self._batch is not None
        bags = part.placed.bags
        # TorchRec calls its modules, one for each kind of bag, one after the other.
        calls = dict.fromkeys(bags) if part.is_eager else {None: None}
        for bag in calls:
            chosen = [number for number, each in enumerate(bags) if bag in (None, each)]
            found = await part.exchange(part.here, self._batch, chosen)
            self._looked += found
            self._coming += [await part.look_up(one) for one in found]

    async def settle(self) -> None:
        """Wait for the rows that are being sent home."""
        self._coming = [Done(await work) for work in self._coming]

    async def _return_all(self) -> None:
        """Send remaining gradients, the last group first, copies (which DDP reduces in TorchRec) after all others."""
        for copies in (False, True):
            await self._send_all(copies=copies)
        if self._part.is_eager:
            await self._update(copies=False)

    async def _send_all(self, *, copies: bool) -> None:
        of_kind = [number for number in self._gradients if self._looked[number].is_copy is copies]
        for number in sorted(of_kind, reverse=True):
            await self._send_back(number, self._gradients.pop(number))

    async def _send_back(self, number: int, gradient: Tensor) -> None:
        looked = self._looked[number]
        returning = await self._part.send_back(looked, gradient, is_last=self._is_last)
        if returning is not None and looked.is_copy and self._part.joins_dense:
            self._joining.append((looked, await returning))
        elif returning is not None:
            self._returning.append((looked, returning))

    async def _update(self, *, copies: bool) -> None:
        chosen = [each for each in self._returning if each[0].is_copy is copies]
        self._returning = [each for each in self._returning if each[0].is_copy is not copies]
        for looked, work in chosen:
            await self._part.update(looked, await work)


@dataclass(frozen=True, slots=True)
class _GroupOutput:
    """An awaitable of a group's output, for one use; work begins only when it is awaited."""

    run: SparsePass
    number: int

    def __await__(self) -> Generator[Any, None, Tensor]:
        return self.run.arrive(self.number).__await__()


def _divide(gradient: Tensor, count: int) -> Tensor:
    return gradient if gradient.is_meta else gradient / count
