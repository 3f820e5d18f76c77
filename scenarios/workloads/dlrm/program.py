"""A full training step of a DLRM, written once over `Rank`: exchanges, lookups, the dense part, reduction, updates.

    ids ─ input exchange ─ lookup ─ output exchange ──┐                    (sparse_part, on the stream "embeddings")
    dense features ─ dense part ──────────────────────┴ dense part ─ loss

and back. Gradients of the dense part's parameters are reduced meanwhile, bucket by bucket, on "dense.gradients". The
loss is the mean over the global batch: dense gradients are averaged over ranks, and embedding gradients, which the
exchange sums, are divided by the number of ranks before they are sent.

A step has n = `pipeline.accumulation` micro-batches, and each one's loss is divided by n before its backward pass, as
PyTorch's users do, so that gradients add up to that of the mean. Gradients of the dense part and of copied tables
accumulate on their rank, and are reduced and used after the last micro-batch, as under DDP's no_sync; sharded tables
are updated in each backward pass, as by TorchRec's fused optimizers.

If there is `replication` (2D parallelism), ids, rows and their gradients are exchanged in sharding groups, each of
which trains its own replica of sharded tables: their gradients are divided by the group's size, and replicas are
averaged after every `sync_every`-th step. The dense part and copied tables are reduced over all ranks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Bag, Model, Recommender, Scenario
from scenarios.modules.ddp_buckets import check_compression
from scenarios.modules.memory import parts_of
from scenarios.modules.trace import Arguments, tensors_of
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import PLAN_FILE
from scenarios.quantized.codec import quantized_comms
from scenarios.seam.kernel import Kernel
from scenarios.seam.memory import MemoryPart
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.roles import DENSE
from scenarios.seam.trace import PlanRow
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.groups import build_groups
from scenarios.sparse.sequences import build_sequence_groups
from scenarios.sparse.tables import tables_of_plan
from scenarios.workloads.dlrm.config import step_effort
from scenarios.workloads.dlrm.dense import Columns, Embeddings, build_dense, check_losses, tell_errors_of
from scenarios.workloads.dlrm.distinct_ids import build_distinct_groups
from scenarios.workloads.dlrm.ids.counts import IdCounter
from scenarios.workloads.dlrm.loader import Drawer, MicroBatch
from scenarios.workloads.dlrm.memory import (
    expected_features,
    expected_inputs,
    held_bytes,
    host_loads,
    memory_rows,
    rank_loads,
)
from scenarios.workloads.dlrm.pipelines import Loop
from scenarios.workloads.dlrm.quantized_plan import check_quantized
from scenarios.workloads.dlrm.sparse_part import Group, GroupedTables, SparsePart
from scenarios.workloads.dlrm.tables.shard_price import with_moved_bytes


class DlrmProgram(Program):
    """A program of `scenario.steps` training steps; records `loss`, the mean over this rank's samples, each step.

    Each step is preceded by drawing its batch (all micro-batches), unless a loader provides it, and by a barrier;
    neither belongs to the step.

    Raises:
        ScenarioError: the tables do not fit, or gradients or exchanges cannot be compressed as requested.
    """

    def __init__(self, scenario: Scenario) -> None:
        workload = Recommender.of(scenario.workload)
        self.scenario, self.workload, self.model = scenario, workload, workload.model
        plan = with_moved_bytes(plan_tables(scenario), scenario)
        given = workload.planner.plan
        self._found = given.path.read_bytes() if given is not None and given.is_found else None
        self.groups, bags = _groups(self.model, plan, scenario)
        check_quantized(scenario, self.groups)
        self.columns = Columns(self.groups, self.model.features)
        self.dense = build_dense(scenario)
        parts = self._trace()
        self.features: Mapping[Bag, ExpectedJagged] | None = None  # features of every rank, if they are not drawn
        expected: tuple[ExpectedInput, ...] = ()
        read = {name for group in self.groups if group.reads_ids for name in group.features}
        self.effort = step_effort(scenario, read, len(self.groups))
        if scenario.run.ranks == "alike":
            expected = expected_inputs(self.groups, self.model, scenario.run.batch_size)
            self._expect(plan, parts, bags, expected)
        else:
            self.plan = _on_all_ranks(plan, scenario)
            self.memory = memory_rows(scenario, self.plan, parts)
        self.counter = IdCounter(scenario)
        self.placed = GroupedTables(groups=self.groups, bags=bags, expected=expected)

    def _trace(self) -> tuple[MemoryPart, ...]:
        """Trace the dense part before any step; return its parts of a rank's memory."""
        scenario, model, dtype = self.scenario, self.model, getattr(torch, self.model.dtype)
        accumulates = self.workload.pipeline.accumulation > 1
        samples, groups = scenario.run.batch_size, len(self.groups)
        outputs = [torch.empty(each.output_shape(samples), dtype=dtype, device="meta") for each in self.groups]
        features = torch.empty(samples, model.dense_features, dtype=dtype, device="meta")
        lengths = [
            torch.empty(samples, dtype=getattr(torch, model.lengths_dtype), device="meta")
            for _ in self.columns.sequences
        ]
        embeddings = Embeddings(self.columns, [each.requires_grad_() for each in outputs], lengths)
        arguments: Arguments = (features, embeddings, torch.empty(samples, device="meta")), {}
        late = tuple(range(1, 1 + groups))
        with tell_errors_of(scenario, model):
            traced = self.dense.traced(arguments, late=late)
            parts = parts_of(self.dense, arguments, 1, late, accumulates=accumulates)
            starts = (False, True) if accumulates else (False,) if model.loss_scaling is not None else ()
            for adds in starts:  # the first micro-batch, and the others
                given = [None if each is None else True for each in traced.gradients]
                self.dense.traced(arguments, given, accumulates=adds, late=late)
        self.joins_dense = scenario.workload.launching.grouped_all_reduce and bool(traced.parameters)
        check_losses(scenario, traced)
        check_compression(scenario, [each.shape for each in traced.parameters], dtype)
        return parts

    def _expect(
        self, plan: Plan, parts: Sequence[MemoryPart], bags: Sequence[Bag], expected: Sequence[ExpectedInput]
    ) -> None:
        """Set up host classes: one host each is simulated, with the memory of the class's fullest rank."""
        scenario, cluster, batch_size = self.scenario, self.scenario.cluster, self.scenario.run.batch_size
        self.features = expected_features(self.model, batch_size)
        loads = rank_loads(self.groups, expected, scenario)
        by_host = host_loads(loads, cluster.host.gpus)
        self.host_classes = HostClasses.of(by_host, cluster.host.gpus, cluster.faulty_hosts, cluster.hosts_per_domain)
        self.plan = plan.rows_for(self.host_classes.ranks)
        held = held_bytes(loads, bags, plan, scenario)
        fullest = self.host_classes.most(held)
        self.memory = memory_rows(
            scenario, plan.rows_for(fullest), parts, fullest, counts=self.host_classes.rank_counts
        )

    def kept(self) -> dict[str, bytes]:
        """Return the plan file, if the plan was found by simulation."""
        return {} if self._found is None else {PLAN_FILE: self._found}

    async def __call__(self, rank: Rank) -> None:
        await _Replica(self, rank).loop.run(range(self.scenario.run.steps))


class _Replica:
    """One rank's parameters and its part of a step; `loop` runs the steps."""

    def __init__(self, program: DlrmProgram, rank: Rank) -> None:
        scenario = program.scenario
        self._scenario, self._model, self._groups = scenario, program.model, program.groups
        self._rank, self._dense, self._reduces_each = rank, program.dense.on(rank), program.dense.reduces_each
        fuses, joins = bool(program.dense.fuses), program.joins_dense
        self._sparse = SparsePart(scenario, program.placed, rank, dense=self._dense, fuses=fuses, joins_dense=joins)
        self._columns, self._dtype = program.columns, getattr(torch, self._model.dtype)
        self._micro_batches = Recommender.of(scenario.workload).pipeline.accumulation
        self._losses: list[dict[str, Tensor]] = []  # by micro-batch of this step
        drawer = Drawer(scenario, rank, program.counter, program.features)
        self.loop = Loop(scenario, rank, drawer, self._sparse, train=self._train, sync=self._sync)

    async def _sync(self, step: int) -> None:
        replication = self._scenario.workload.replicas
        if replication is not None and replication.syncs_after(step):
            await self._sparse.sync()

    async def _train(self, batch: MicroBatch, between: Callable[[], Awaitable[None]]) -> None:
        """Run both passes over one micro-batch; after the step's last one, update the dense part."""
        dense, is_last = batch.dense, batch.is_last
        sparse = batch.sparse or self._sparse.forward(batch.features, batch.looked, is_last=is_last)
        await sparse.begin()
        outputs = [self._output(group, sparse.output(number)) for number, group in enumerate(self._groups)]
        embeddings = Embeddings(self._columns, outputs, dense.lengths)
        result = await self._dense(dense.features, embeddings, dense.labels)
        ready = {output: partial(sparse.give, number) for number, output in enumerate(outputs)}
        losses = self._record(result, is_last=is_last)
        await between()
        is_scaled = self._model.loss_scaling is not None
        gradients = await self._shares(losses) if is_scaled or self._micro_batches > 1 else None
        sync = is_last or self._reduces_each
        await self._dense.backward(losses, gradients, ready=ready, sync=sync, also=sparse.joining)
        await sparse.finish()
        if is_last:
            await self._dense.update()
            await sparse.update_joined()

    async def _shares(self, losses: Sequence[Tensor]) -> list[Tensor]:
        """Return the derivative of the step's loss by each micro-batch's losses: 1 / n, scaled like the losses."""
        # Launches: the gradient of 1, the division or multiplication of the loss, and that of its gradient.
        passes = 1 + 2 * (self._micro_batches > 1) + 2 * (self._model.loss_scaling is not None)
        cost = Kernel(kind="elementwise", dtype=self._model.dtype, launches=passes * len(losses))
        return await self._rank.compute(cost, self._shares_of, losses, label="dense.loss_share", role=DENSE)

    def _shares_of(self, losses: Sequence[Tensor]) -> list[Tensor]:
        shares, scaler = [torch.full_like(loss, 1 / self._micro_batches) for loss in losses], self._dense.scaler
        return shares if scaler is None else scaler.scale_gradients(shares)

    def _output(self, group: Group, coming: Awaitable[Tensor]) -> Tensor:
        """Return the tensor for the dense part of a group's output, before that has arrived."""
        shape = group.output_shape(self._scenario.run.batch_size)
        return self._dense.later(coming, *shape, dtype=self._dtype, requires_grad=True)

    def _record(self, result: Any, *, is_last: bool) -> list[Tensor]:
        """Return the losses (one, several, or a mapping by name), and record them; their sum is the metric `loss`.

        Recorded values are means over the step's micro-batches.
        """
        losses = tensors_of(result)
        total = losses[0] if losses[0].is_meta else torch.stack([loss.reshape(()) for loss in losses]).sum()
        named = {str(name): loss for name, loss in result.items()} if isinstance(result, Mapping) else {}
        self._losses.append({**named, "loss": total})
        if is_last:
            for name in self._losses[0]:
                of_each = [found[name] for found in self._losses]
                self._rank.record(name, of_each[0] if len(of_each) == 1 else torch.stack(of_each).mean(0))
            self._losses = []
        return losses


def _on_all_ranks(plan: Plan, scenario: Scenario) -> tuple[PlanRow, ...]:
    """Return the rows of all shards; with replication, those of each sharding group."""
    replication = scenario.workload.replicas
    if replication is None:
        return plan.rows
    groups = replication.sharding_groups(scenario.cluster.world_size)
    return tuple(replace(row, rank=ranks[row.rank]) for ranks in groups for row in plan.rows)


def _groups(model: Model, plan: Plan, scenario: Scenario) -> tuple[tuple[Group, ...], tuple[Bag, ...]]:
    """Group tables by kind of bag, then by sharding type like TorchRec's modules; return groups and their bags."""
    keys = {table.name: tuple(feature.name for feature in table.by_feature) for table in model.tables}
    sharded = {table.name: replace(table, features=keys[table.name]) for table in tables_of_plan(plan.row_runs)}
    place = scenario.sharding_ranks, scenario.sharding_host_ranks
    codecs = quantized_comms(Recommender.of(scenario.workload).qcomms)
    groups: list[Group] = []
    bags: list[Bag] = []
    for bag, tables in model.bags.items():
        names = {table.name for table in tables}
        of_bag = [table for name, table in sharded.items() if name in names]
        label = ("" if bag == "pooled" else f"{bag}.") + "{sharding_type}."
        if bag == "sequence":
            longest = {table.name: table.sequence for table in tables}
            found: Sequence[Group] = build_sequence_groups(of_bag, longest, *place, label=label, codecs=codecs)
        elif bag == "distinct":
            gpu = scenario.cluster.host.gpu
            sorts, l2_bytes = gpu.device.sorts_ids, gpu.l2_bytes or 0
            found = build_distinct_groups(of_bag, *place, label=label, codecs=codecs, sorts=sorts, l2_bytes=l2_bytes)
        else:
            found = build_groups(of_bag, *place, label=label, codecs=codecs)
        groups += found
        bags += [bag] * len(found)
    return tuple(groups), tuple(bags)
