"""A full training step of a DLRM, written once over `Rank`: exchanges, look-ups, dense passes, reduction, updates.

    ids ─ input exchange ─ look-up ─ output exchange ─┐                 (output exchange on the stream "embeddings",
    dense features ─ bottom ──────────────────────────┴ interaction ─ top ─ loss    beside the bottom's forward)

and back: while the backward of the bottom goes on, the embeddings' gradients travel on "embeddings" and the dense ones
are reduced, bucket by bucket, on "gradients". The loss is the mean over the global batch: dense gradients are averaged
over ranks, and embedding gradients, which the exchange sums, are divided by the number of ranks before they leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from scenarios.config.host_classes import HostClasses
from scenarios.config.scenario import Optimizer, Scenario
from scenarios.modules.ddp_buckets import GradientReducer, check_compression, unflatten
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.seam.backend import Work
from scenarios.seam.kernel import ELEMENT_BYTES, Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.sparse.expected import ExpectedInput, ExpectedJagged
from scenarios.sparse.groups import ShardedGroup, build_groups, outputs_to_tables, tables_to_outputs
from scenarios.sparse.keyed_jagged import KeyedJagged
from scenarios.sparse.meta_tensors import cat
from scenarios.sparse.tables import tables_of_plan
from scenarios.workloads.dlrm.batches import Dense, draw_bags, draw_dense
from scenarios.workloads.dlrm.config import step_effort
from scenarios.workloads.dlrm.dense import Block, Layers, Tape, build_layers, load_autograd
from scenarios.workloads.dlrm.embedding import Features, Piece, Rows
from scenarios.workloads.dlrm.embedding_torch import ADAGRAD_EPSILON
from scenarios.workloads.dlrm.memory import (
    expected_features,
    expected_inputs,
    held_bytes,
    host_loads,
    memory_rows,
    rank_loads,
)

_WIDE_BYTES = torch.float32.itemsize


class DlrmProgram(Program):
    """`scenario.steps` training steps; records `loss`, the mean over this rank's batch, each step.

    Before each step the ranks meet in a barrier and draw their batch, neither of which belongs to the step.

    Raises:
        ScenarioError: the tables fit nowhere, or the gradients cannot be compressed as asked.
    """

    def __init__(self, scenario: Scenario) -> None:
        assert scenario.model is not None
        self.scenario, self.model = scenario, scenario.model
        cluster, plan = scenario.cluster, plan_tables(scenario)
        tables = tables_of_plan(plan.row_runs)
        self.groups = build_groups(tables, cluster.world_size, cluster.host.gpus, label="{sharding_type}.")
        layers = build_layers(self.model)
        self.features: ExpectedJagged | None = None  # of every rank, where they are not drawn
        self.expected: tuple[ExpectedInput, ...] = ()
        if scenario.ranks == "alike":
            self._expect(plan, layers)
        else:
            cut = {name for group in self.groups if group.layout.cuts_rows for name in group.features}
            self.effort = step_effort(scenario, cut, len(self.groups))
            self.plan = plan.rows
            self.memory = memory_rows(scenario, self.plan, layers)
        check_compression(scenario, layers.shapes, getattr(torch, self.model.dtype))

    def _expect(self, plan: Plan, layers: Layers) -> None:
        """Simulate one host per class; its memory is that of the class's fullest rank."""
        scenario, cluster, batch_size = self.scenario, self.scenario.cluster, self.scenario.batch_size
        self.features = expected_features(self.model, batch_size)
        self.expected = expected_inputs(self.groups, self.model, batch_size)
        loads = rank_loads(self.groups, self.expected, cluster.world_size)
        by_host = host_loads(loads, cluster.host.gpus)
        self.host_classes = HostClasses.of(by_host, cluster.host.gpus, cluster.faulty_hosts, cluster.hosts_per_domain)
        self.plan = plan.rows_for(self.host_classes.ranks)
        held = held_bytes(loads, plan, batch_size, ELEMENT_BYTES[self.model.dtype])
        fullest = self.host_classes.most(held)
        self.memory = memory_rows(
            scenario, plan.rows_for(fullest), layers, fullest, counts=self.host_classes.rank_counts
        )

    async def __call__(self, rank: Rank) -> None:
        replica = _Replica(self, rank)
        for step in range(self.scenario.steps):
            await replica.step(step)


@dataclass(slots=True)
class _Looked:
    """What one group's look-up leaves for its backward."""

    group: ShardedGroup
    rows: Rows
    features: Features

    @property
    def is_copy(self) -> bool:
        """Whether every rank holds these tables whole."""
        return self.group.sharding_type == "data_parallel"


@dataclass(slots=True)
class _Returning:
    """Gradients on their way: of shards to their owners, of copies into their sums."""

    shards: list[tuple[_Looked, Work[Tensor]]] = field(default_factory=list)
    copies: list[tuple[_Looked, Work[Tensor]]] = field(default_factory=list)


class _Replica:
    """One rank's parameters and its part of a step."""

    def __init__(self, program: DlrmProgram, rank: Rank) -> None:
        self._scenario, self._model, self._groups = program.scenario, program.model, program.groups
        self._features, self._expected = program.features, program.expected
        self._cut_by_rows = {name for group in self._groups if group.layout.cuts_rows for name in group.features}
        self._rank = rank
        self._embeddings = rank.stream("embeddings")
        self._layers = build_layers(self._model)
        dtype: torch.dtype = getattr(torch, self._model.dtype)
        self._layers.set_parameters(self._scenario.seed, rank.device, dtype)
        load_autograd(rank.device)
        self._rows = [self._rows_of(group, dtype) for group in self._groups]
        self._reducer = GradientReducer(
            rank.stream("gradients"),
            self._layers.shapes,
            dtype=dtype,
            buckets=self._scenario.buckets,
            compression=self._scenario.compression,
        )
        self._optimizer = DenseOptimizer(self._layers, self._model.optimizer)

    async def step(self, step: int) -> None:
        """One step on its own batch, which is gone before the next one is drawn."""
        features, dense = self.draw(step)
        await self._rank.barrier(label="start")
        with self._rank.step(step):
            await self.train(features, dense)

    def draw(self, step: int) -> tuple[Features, Dense]:
        """This rank's batch. Ids are real even where payload is not: they decide sizes."""
        dense = draw_dense(self._scenario, self._model, self._rank.rank, step, device=self._rank.device)
        return self._features or self._draw_ids(step), dense

    def _draw_ids(self, step: int) -> KeyedJagged:
        """Without payload the ids of tables that no exchange cuts by rows are zeros: only how many they are counts."""
        rank, tables = self._rank, self._model.tables
        is_read = [rank.device.type != "meta" or table.name in self._cut_by_rows for table in tables]
        bags = [
            draw_bags(self._scenario, number, rank.rank, step, with_ids=reads) for number, reads in enumerate(is_read)
        ]
        device = rank.control_device if rank.device.type == "meta" else rank.device
        lengths = np.concatenate([bag.lengths for bag in bags])
        ids = np.zeros(int(lengths.sum()), np.int64)
        begin = 0
        for bag, reads in zip(bags, is_read, strict=True):
            end = begin + int(bag.lengths.sum())
            if reads:
                ids[begin:end] = bag.ids
            begin = end
        return KeyedJagged(
            keys=tuple(table.name for table in tables),
            values=torch.from_numpy(ids).to(device),
            lengths=torch.from_numpy(lengths).to(rank.control_device),
            stride=self._scenario.batch_size,
        )

    async def train(self, features: Features, dense: Dense) -> None:
        looked = [await self._look_up_input(index, features) for index in range(len(self._groups))]
        outputs = [await self._send_pooled(one) for one in looked]
        tapes: list[Tape] = []
        bottom = await self._forward(self._layers.bottom, (dense.features,), tapes)
        tables = outputs_to_tables(self._groups, [await output for output in outputs])
        together = await self._concatenate(bottom, tables)
        logits = await self._forward_after(together, tapes)
        gradient = await self._loss(logits, dense.labels)
        gradient = await self._backward_after(gradient, tapes)
        returning = await self._send_gradients(gradient[:, bottom.shape[1] :], looked)
        await self._backward(self._layers.bottom, gradient[:, : bottom.shape[1]], tapes)
        await self._update_embeddings(returning)
        await self._optimizer.step(self._rank, await self._reducer.finish())

    def _rows_of(self, group: ShardedGroup, dtype: torch.dtype) -> Rows:
        numbers = {table.name: number for number, table in enumerate(self._model.tables)}
        pieces = [
            Piece(
                table=numbers[part.table],
                rows=range(part.row_offset, part.row_offset + part.rows),
                columns=range(part.column_offset, part.column_offset + part.columns),
            )
            for part in group.lookups(self._rank.rank)
        ]
        optimizer = self._model.optimizer
        return Rows(pieces, self._scenario.seed, self._rank.device, dtype, optimizer=optimizer)

    async def _look_up_input(self, index: int, features: Features) -> _Looked:
        group, rows = self._groups[index], self._rows[index]
        if isinstance(features, ExpectedJagged):
            return _Looked(group, rows, await self._expected[index](self._rank, features))
        return _Looked(group, rows, await group.input(self._rank, features))

    async def _send_pooled(self, looked: _Looked) -> Work[Tensor]:
        """Look up, and let the result travel while others are looked up."""
        features, label = looked.features, f"{looked.group.sharding_type}.lookup"
        pooled = await self._rank.compute(
            looked.rows.look_up_kernel(features), looked.rows.look_up, features, label=label
        )
        side = self._embeddings
        return side.spawn(looked.group.forward(side, pooled, features.batch_per_rank))

    async def _forward(self, blocks: Sequence[Block], inputs: tuple[Tensor, ...], tapes: list[Tape]) -> Tensor:
        output = inputs[-1]
        for block in blocks:
            kernel, label = block.forward_kernel(self._scenario.batch_size), f"{block.name}.forward"
            output, tape = await self._rank.compute(kernel, block.forward, *inputs[:-1], output, label=label)
            tapes.append(tape)
        return output

    async def _forward_after(self, together: Tensor, tapes: list[Tape]) -> Tensor:
        """Interaction and top: [batch, all features] to one logit a sample."""
        layers = self._layers
        crossed = await self._forward(layers.cross, (together, together), tapes) if layers.cross else together
        dotted = await self._forward(layers.dot, (crossed,), tapes)
        return await self._forward(layers.top, (dotted,), tapes)

    async def _backward(self, blocks: Sequence[Block], gradient: Tensor, tapes: list[Tape]) -> list[Tensor]:
        """Back through blocks; their parameters' gradients go to the reducer. The gradients of all inputs but the last
        add up over the blocks, and come before it.
        """
        shared: list[Tensor] = []
        for block in reversed(blocks):
            kernel, label = block.backward_kernel(self._scenario.batch_size), f"{block.name}.backward"
            inputs, parameters = await self._rank.compute(kernel, block.backward, tapes.pop(), gradient, label=label)
            *others, gradient = inputs
            shared = [_add(*both) for both in zip(shared, others, strict=True)] if shared else others
            first = self._optimizer.first_index[block.name]
            for offset in reversed(range(len(parameters))):
                self._reducer.add(first + offset, parameters[offset])
        return [*shared, gradient]

    async def _backward_after(self, gradient: Tensor, tapes: list[Tape]) -> Tensor:
        """The gradient of all features, [batch, bottom's width and all tables' dims]."""
        for blocks in (self._layers.top, self._layers.dot):
            (gradient,) = await self._backward(blocks, gradient, tapes)
        if not self._layers.cross:
            return gradient
        first, last = await self._backward(self._layers.cross, gradient, tapes)
        kernel = _moved("elementwise", first.numel(), 2 * first.element_size(), first.element_size())
        return await self._rank.compute(kernel, _add, first, last, label="interaction.backward")

    async def _concatenate(self, bottom: Tensor, tables: dict[str, Tensor]) -> Tensor:
        parts = [bottom, *(tables[table.name] for table in self._model.tables)]
        elements = sum(part.numel() for part in parts)
        kernel = _moved("permute", elements, bottom.element_size(), bottom.element_size())
        return await self._rank.compute(kernel, cat, parts, 1, label="interaction.forward")

    async def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kernel = binary_cross_entropy_kernel(logits)
        loss, gradient = await self._rank.compute(kernel, binary_cross_entropy, logits, labels, label="loss")
        self._rank.record("loss", loss)
        return gradient

    async def _send_gradients(self, gradient: Tensor, looked: Sequence[_Looked]) -> _Returning:
        """The embeddings' gradients start on their way to the rows' owners, or, of copies, to be summed."""
        dims = [table.dim for table in self._model.tables]
        kernel, label, size = self._split_kernel(gradient), "embeddings.gradients", self._rank.world_size
        parts = await self._rank.compute(kernel, self._split, gradient, dims, size, label=label)
        side, pairs = self._embeddings, list(zip(looked, parts, strict=True))
        returning = _Returning()
        for one, part in pairs:
            if not one.is_copy:
                back = side.spawn(one.group.backward(side, part, one.features.batch_per_rank))
                returning.shards.append((one, back))
        for one, part in pairs:
            if one.is_copy:
                returning.copies.append((one, await self._sum_copies(one, part)))
        return returning

    def _split(self, gradient: Tensor, dims: list[int], world_size: int) -> list[Tensor]:
        scaled = gradient if gradient.is_meta else gradient / world_size
        columns = torch.split_with_sizes(scaled, dims, dim=1)
        by_table = {table.name: part for table, part in zip(self._model.tables, columns, strict=True)}
        return tables_to_outputs(self._groups, by_table)

    def _split_kernel(self, gradient: Tensor) -> Kernel:
        """All elements are divided, then those of groups with several columns put side by side."""
        joined = [group for group in self._groups if len(group.columns) > 1]
        elements = gradient.numel() + len(gradient) * sum(group.width for group in joined)
        size = gradient.element_size()
        return _moved("permute", elements, size, size, launches=1 + len(joined))

    async def _update_embeddings(self, returning: _Returning) -> None:
        for one, work in returning.shards:
            await self._update_shards(one, await work)
        for one, total in returning.copies:
            kernel, label = one.rows.dense_update_kernel(), "data_parallel.update"
            await self._rank.compute(kernel, one.rows.update_dense, await total, label=label)

    async def _update_shards(self, looked: _Looked, gradient: Tensor) -> None:
        rows, features, label = looked.rows, looked.features, f"{looked.group.sharding_type}.update"
        await self._rank.compute(rows.update_kernel(features), rows.update, features, gradient, label=label)

    async def _sum_copies(self, looked: _Looked, gradient: Tensor) -> Work[Tensor]:
        """Every rank has a copy of these tables: their whole gradients are summed, like a dense layer's."""
        rows, features, rank = looked.rows, looked.features, self._rank
        kernel = rows.dense_gradients_kernel(features)
        flat = await rank.compute(kernel, rows.dense_gradients, features, gradient, label="data_parallel.gradients")
        return rank.all_reduce(flat, label="data_parallel.all_reduce")


class DenseOptimizer:
    """SGD or Adagrad for the dense parameters, in the order of the layers' blocks.

    It puts them one behind the other in one tensor, of which the blocks' are views: an operator serves them all.
    """

    def __init__(self, layers: Layers, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters = cat([each.detach().view(-1) for block in layers.blocks for each in block.parameters], 0)
        squares = self._parameters.numel() if optimizer.kind == "adagrad" else 0
        self._squares = torch.zeros(squares, device=self._parameters.device)
        views = iter(unflatten(self._parameters, layers.shapes))
        self.first_index: dict[str, int] = {}
        index = 0
        for block in layers.blocks:
            block.parameters = [view.requires_grad_() for view in islice(views, len(block.shapes))]
            self.first_index[block.name] = index
            index += len(block.shapes)

    async def step(self, rank: Rank, gradients: Sequence[Tensor]) -> None:
        """Change parameters and state in place."""
        await rank.compute(self._kernel(), self._step, gradients, label="dense.update")

    def _kernel(self) -> Kernel:
        """Gradients are put together; SGD is one operator, Adagrad five, in float32, and two conversions for others."""
        size = self._parameters.element_size()
        read, written, launches = 3 * size, 2 * size, 2
        if self._optimizer.kind == "adagrad":
            read, written, launches = read + 7 * _WIDE_BYTES, written + 4 * _WIDE_BYTES, 6
            if self._parameters.dtype != torch.float32:
                read, written, launches = read + size + _WIDE_BYTES, written + size + _WIDE_BYTES, 8
        return _moved("optimizer", self._parameters.numel(), read, written, launches=launches)

    @torch.no_grad()
    def _step(self, gradients: Sequence[Tensor]) -> None:
        if self._parameters.is_meta:
            return
        rate, gradient = self._optimizer.learning_rate, torch.cat([each.view(-1) for each in gradients])
        if self._optimizer.kind == "adagrad":
            # In float32: float16 has neither the squares nor the epsilon.
            wide = gradient.float()
            square = self._squares.addcmul_(wide, wide)
            gradient = (wide / square.sqrt().add_(ADAGRAD_EPSILON)).to(gradient.dtype)
        self._parameters.sub_(gradient, alpha=rate)


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean loss of logits [batch, 1], in float32, and its gradient in the logits' dtype."""
    if logits.is_meta:
        return logits.new_empty(()), logits.new_empty(logits.shape)
    wide = logits.float().view(-1)
    loss = functional.binary_cross_entropy_with_logits(wide, labels)
    gradient = (torch.sigmoid(wide) - labels) / labels.numel()
    return loss, gradient.to(logits.dtype).view_as(logits)


def binary_cross_entropy_kernel(logits: Tensor) -> Kernel:
    """The loss, the sigmoid, its difference from the labels, a division; and two conversions for half precision."""
    size, is_half = logits.element_size(), logits.dtype != torch.float32
    converted = (size + _WIDE_BYTES) * is_half
    read, written = 6 * _WIDE_BYTES + converted, 3 * _WIDE_BYTES + converted
    return _moved("elementwise", logits.numel(), read, written, launches=4 + 2 * is_half)


def _add(first: Tensor, second: Tensor) -> Tensor:
    return first if first.is_meta else first + second


def _moved(kind: str, elements: int, read_bytes: int, written_bytes: int, *, launches: int = 1) -> Kernel:
    """A kernel of one operation, and so many bytes read and written, for each element."""
    return Kernel(
        kind=kind,
        flops=float(elements),
        bytes_read=float(elements * read_bytes),
        bytes_written=float(elements * written_bytes),
        launches=launches,
    )
