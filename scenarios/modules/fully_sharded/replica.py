"""A rank's shards of a module, as in torch's fully_shard: units are gathered, gradients reduced and scattered.

Gathers and reductions run on a separate stream, in the order of their issue: fully_shard uses two streams, but one
process group, whose NCCL communicator runs one collective at a time. Replicas ("hsdp") are averaged on a third stream.
Copies out of gathers and into reductions run on the main stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.compression.local import compute, copy_cost, cost
from scenarios.modules.ddp_buckets import GradientReducer
from scenarios.modules.fully_sharded.schedule import Action, Schedule, schedule, windows
from scenarios.modules.fully_sharded.shards import ShardedParameter, UnitLayout, copy_in, copy_out, cut
from scenarios.modules.fully_sharded.steps import backward_steps, forward_steps
from scenarios.modules.fully_sharded.units import Mark, Phase, UnitHooks
from scenarios.modules.late_arguments import Needs
from scenarios.modules.replica import Replica
from scenarios.modules.tape import Tape
from scenarios.modules.trace import Arguments, Trace, tensors_of
from scenarios.seam.backend import Work
from scenarios.seam.errors import ProgramError
from scenarios.seam.group import Group, own_group
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.roles import DENSE, PARAMETERS, REDUCTION

if TYPE_CHECKING:
    from scenarios.modules.module import Module


class ShardedReplica(Replica):
    """A module on a rank that has a shard of each parameter: call it, then `backward`, then `update`.

    Attributes:
        parameters: this rank's shards, perhaps without rows; none where payload has no values.
    """

    def __init__(self, model: Module, rank: Rank) -> None:
        self._shards = rank.stream(f"{model.name}.shards")
        self._copies = rank.stream(f"{model.name}.replicas") if model.parallel.kind == "hsdp" else None
        self._group, self._replicas = _groups_of(model, self._shards, self._copies)
        self._size, self._units = self._group.size, model.units
        self._sharded: list[ShardedParameter] = []
        self._place = self._group.ranks.index(rank.rank)
        # After the group is known: `_optimized_tensors`, which the base calls, needs its size and this rank's place.
        super().__init__(model, rank)
        self._hooks: UnitHooks | None = None
        self._is_open = False
        self._flats: dict[int, Tensor] = {}
        self._gathers: dict[int, Work[Tensor]] = {}
        self._reductions: deque[Work[Work[None] | None]] = deque()
        self._replicated: list[Work[None]] = []
        self._summed: set[int] = set()  # parameters whose shards have a gradient

    async def _forward(self, traced: Trace, arguments: Arguments, late: tuple[int, ...]) -> tuple[Tape, Any]:
        if self._is_open:
            raise ProgramError(f"{self}: called twice before a backward pass: expected one after each, with shards")
        # Marks and hooks are those of one pass: a second forward before the backward would replace them.
        self._is_open = True
        running = None if self.module is None else self._pass(arguments, late)
        self._marks = iter(zip(traced.marks[0], self._schedule(traced).forward, strict=True))
        given, label = tensors_of(arguments), f"{self._model.name}.forward"
        self._called += 1
        for number, step in enumerate(forward_steps(traced, self._schedule(traced))):
            self._expected = step.needs
            await self._compute(step.kernel, label, number, self._go_on, running, number)
            for index in step.needs:
                await self._arrive(given[index])
            for action in step.actions:
                await self._do(action, traced)
        return await self._tape(traced, arguments, late, running)

    def _stops(self, late: tuple[int, ...]) -> bool:
        return True

    async def _play(
        self,
        traced: Trace,
        inputs: Sequence[Tensor],
        ready: Mapping[Tensor, Callable[[Tensor], object]],
        reducer: GradientReducer | None,
    ) -> None:
        """Run the pass, stopping at units and at gradients that a function waits for; then reduce all gradients."""
        found, label = self._schedule(traced), f"{self._model.name}.backward"
        if self._hooks is not None:
            self._hooks.reached, self._marks = self._reach_backward, iter(zip(*self._both(traced), strict=True))
        waited = {index for index, each in enumerate(inputs) if any(each is key for key in ready)}
        for number, step in enumerate(backward_steps(traced, found, waited)):
            await self._compute(step.kernel, label, number, self._advance, step.stop)
            if step.stop is not None and not isinstance(step.stop, Mark):
                await self._tell(ready, inputs[step.stop.input])
            for action in step.actions:
                await self._do(action, traced)
        await self._settle()
        self._hooks, self._is_open = None, False

    async def _settle(self) -> None:
        """Wait, at the end of a backward pass, for everything that it has issued."""
        await self._await_reductions()
        for replicated in self._replicated:
            await replicated
        self._replicated = []
        for gather in self._gathers.values():  # gathered for a unit that the pass did not reach
            await gather
        self._gathers = {}

    async def _compute(
        self, kernel: Kernel | None, label: str, number: int, function: Callable[..., object], *given: object
    ) -> None:
        if kernel is None:
            function(*given)
        else:
            await self._rank.compute(kernel, function, *given, label=f"{label}.{number}", role=DENSE)

    async def _do(self, action: Action, traced: Trace) -> None:
        unit = action.unit
        layout = self._layout(traced, self._units[unit].parameters)
        match action.kind:
            case "gather":
                # Spawned now, run in the order of issue: the stream is the communicator's queue.
                self._gathers[unit] = self._shards.spawn(self._gather(unit, layout))
            case "await":
                self._flats[unit] = await self._gathers.pop(unit)
            case "copy_out":
                # Popped, so that the gather's memory is free once it is copied.
                flat = self._flats.pop(unit)
                label = self._label(unit, "copy_out")
                given = self._shards_at(self._units[unit].parameters), flat, self._size
                await compute(self._rank, copy_cost(flat, layout.numel), copy_out, *given, label=label, role=PARAMETERS)
            case "free":
                for each in self._shards_at(self._units[unit].parameters):
                    each.free()
            case "await_reduction":
                await self._await_reductions()
            case "reduce":
                await self._begin_reduction(unit, action.parameters, traced)

    async def _gather(self, unit: int, layout: UnitLayout) -> Tensor:
        """Gather all ranks' shards of a unit into a flat tensor."""
        device, side = self._rank.device, self._shards
        own = torch.empty(layout.shard_numel, dtype=layout.dtype, device=device)
        given = self._shards_at(self._units[unit].parameters), own
        await compute(
            side, copy_cost(own, own.numel()), copy_in, *given, label=self._label(unit, "copy_in"), role=PARAMETERS
        )
        if self._size == 1:
            return own
        flat = torch.empty(layout.numel, dtype=layout.dtype, device=device)
        return await side.all_gather_into_tensor(
            flat, own, self._group, label=self._label(unit, "gather"), role=PARAMETERS
        )

    async def _begin_reduction(self, unit: int, indices: tuple[int, ...], traced: Trace) -> None:
        """Concatenate a unit's gradients, and start their reduction."""
        layout = self._layout(traced, indices)
        flat = torch.empty(layout.numel, dtype=layout.dtype, device=self._rank.device)
        # Taken away from the parameters, whose next micro-batch starts without gradients.
        gradients = [each.take_gradient() for each in self._shards_at(indices)]
        kernel, label = copy_cost(flat, layout.numel), self._label(unit, "cut")
        await compute(self._rank, kernel, cut, gradients, flat, self._size, label=label, role=REDUCTION)
        self._reductions.append(self._shards.spawn(self._reduce(unit, indices, flat)))

    async def _await_reductions(self) -> None:
        while self._reductions:
            # A reduce-scatter gives the work of its all-reduce over replicas, which is awaited only at the end of the
            # pass.
            replicated = await self._reductions.popleft()
            if replicated is not None:
                self._replicated.append(replicated)

    async def _reduce(self, unit: int, indices: tuple[int, ...], flat: Tensor) -> Work[None] | None:
        """Reduce this rank's share of a unit's gradients; with replicas, return the work that averages it over them."""
        side, factors = self._shards, self._factors(flat.dtype)
        await _divide(side, flat, factors[0], self._label(unit, "divide"))
        own = flat
        if self._size > 1:
            own = torch.empty(flat.numel() // self._size, dtype=flat.dtype, device=flat.device)
            op = ReduceOp.AVG if factors == (1, 1) else ReduceOp.SUM
            await side.reduce_scatter_tensor(
                own, flat, op, self._group, label=self._label(unit, "reduce"), role=REDUCTION
            )
        if self._copies is None:
            await self._keep(side, unit, indices, own)
            return None
        return self._copies.spawn(self._replicate(unit, indices, own))

    async def _replicate(self, unit: int, indices: tuple[int, ...], own: Tensor) -> None:
        """Average a share over replicas."""
        assert self._copies is not None
        op = ReduceOp.AVG if self._factors(own.dtype) == (1, 1) else ReduceOp.SUM
        await self._copies.all_reduce(own, op, self._replicas, label=self._label(unit, "replicas"), role=REDUCTION)
        await self._keep(self._copies, unit, indices, own)

    async def _keep(self, side: Rank, unit: int, indices: tuple[int, ...], own: Tensor) -> None:
        """Store a share of gradients as the shards' gradients, or add it to those of earlier micro-batches."""
        await _divide(side, own, self._factors(own.dtype)[1], self._label(unit, "divide"))
        adds = self._summed.issuperset(indices)
        self._summed.update(indices)
        if adds:
            numel = own.numel()
            kernel = cost("elementwise", own, flops=numel, read=2 * numel, written=numel, launches=len(indices))
            label = self._label(unit, "accumulate")
            await compute(side, kernel, self._give, indices, own, label=label, role=REDUCTION)
        else:
            self._give(indices, own)

    def _give(self, indices: tuple[int, ...], own: Tensor) -> None:
        begin = 0
        for each in self._shards_at(indices):
            gradient = each.view(own[begin : begin + each.padded.numel()])
            each.own.grad = gradient if each.own.grad is None else each.own.grad.add_(gradient)
            begin += each.padded.numel()

    async def update(self) -> None:
        """Run the optimizer on the shards' gradients, averaged since the backward pass; they are None afterwards."""
        await super().update()
        self._summed.clear()

    def _factors(self, dtype: torch.dtype) -> tuple[float, float]:
        """Return the divisors of gradients before and after their sum; (1, 1): the collective averages.

        Each divisor is about the square root of the number of ranks for dtypes other than float32 and bfloat16, to
        avoid overflow; the first is a power of 2.
        """
        ranks = self._size * (1 if self._replicas is None else self._replicas.size)
        if dtype in (torch.float32, torch.bfloat16) or ranks == 1:
            return 1, 1
        before = 1
        while ranks % before == 0 and ranks / before > before:
            before *= 2
        return before, ranks / before

    def _optimized_tensors(self, parameters: list[Tensor]) -> list[Tensor]:
        self._sharded = [ShardedParameter(each, self._size, self._place) for each in parameters]
        return [each.own for each in self._sharded]

    def _update_kernel(self) -> Kernel:
        return self._model.updated_on(self._size).kernel

    def _watching(self, needs: Needs) -> AbstractContextManager[object]:
        if not self._units:
            return nullcontext()
        assert self.module is not None
        self._hooks = UnitHooks(self.module, self._units, self._reach_forward, needs.is_left)
        return self._hooks

    def _reach_forward(self, phase: Phase, unit: int) -> None:
        actions = self._next(phase, unit)[1]
        if actions:
            assert self._running_forward is not None
            self._running_forward.stop()

    def _reach_backward(self, phase: Phase, unit: int) -> None:
        assert self._running is not None
        self._running.has_reached(self._next(phase, unit)[0])

    def _finish_backward(self) -> None:
        if self._hooks is not None:
            self._hooks.finish()

    def _next(self, phase: Phase, unit: int) -> tuple[Mark, tuple[Action, ...]]:
        """Return the next traced mark and its actions, and check that it is this one."""
        mark, actions = next(self._marks, (None, ()))
        if mark is None or (mark.phase, mark.unit) != (phase, unit):
            raise ProgramError(f"{self}: it calls its units in another order than when it was traced")
        return mark, actions

    def _both(self, traced: Trace) -> tuple[Sequence[Mark], Sequence[tuple[Action, ...]]]:
        return traced.marks[1], self._schedule(traced).backward

    def _schedule(self, traced: Trace) -> Schedule:
        return schedule_of(self._model, traced, reduces=not self._accumulates)

    def _layout(self, traced: Trace, indices: Sequence[int]) -> UnitLayout:
        return layout_of(traced, indices, self._size)

    def _shards_at(self, indices: Sequence[int]) -> list[ShardedParameter]:
        return [self._sharded[index] for index in indices] if self._sharded else []

    def _label(self, unit: int, what: str) -> str:
        return f"{self._model.name}.{self._units[unit].label}.{what}"


def layout_of(traced: Trace, indices: Sequence[int], size: int) -> UnitLayout:
    """Return the layout of these parameters in `size` shards."""
    shapes = tuple(traced.parameters[index].shape for index in indices)
    return UnitLayout(shapes, traced.parameters[indices[0]].dtype, size)


def schedule_of(model: Module, traced: Trace, *, reduces: bool) -> Schedule:
    """Return the actions of a forward and backward pass that reduces gradients (`reduces`) or keeps them."""
    arrival = [each.parameter for each in traced.ready]
    return schedule(model.units, *traced.marks, arrival, reduces=reduces)


def check_windows(model: Module, traced: Trace) -> None:
    """Raise a ProgramError if an operator reads a parameter, or creates its gradient, while its unit is sharded."""
    units = model.units
    unit_of = {traced.numbers[index]: number for number, unit in enumerate(units) for index in unit.parameters}
    planned = schedule_of(model, traced, reduces=True)
    if units and planned.lost:
        names = ", ".join(traced.parameters[index].name for index in planned.lost)
        raise ProgramError(
            f"module {model.name}: no reduction for {names}: expected gradients before their unit's backward ends"
        )
    found = windows(planned, *traced.marks)
    for phase, operators in (("forward", traced.forward), ("backward", traced.backward)) if units else ():
        for place, operator in enumerate(operators):
            for number in operator.reads.keys() & unit_of.keys():
                unit = unit_of[number]
                if not any((one.phase, one.unit) == (phase, unit) and one.begin <= place < one.end for one in found):
                    name = traced.parameters[traced.numbers.index(number)].name
                    raise ProgramError(
                        f"module {model.name}: {operator.name} in its {phase} pass reads {name} while unit"
                        f" {units[unit].label} is sharded: expected it to be used only inside its unit's forward"
                    )


def _groups_of(model: Module, shards: Rank, copies: Rank | None) -> tuple[Group, Group | None]:
    """Return this rank's sharding group (its ranks hold all shards together), and the group of ranks with equal shards.

    The second is None without copies. Groups are created here, so every rank must call this.
    """
    if copies is None:
        return shards.world, None
    world = shards.world_size
    size = model.parallel.shard_ranks(world, shards.local_world_size)
    if world % size or size == world:
        raise ProgramError(
            f"module {model.name}: parallel.shard_group_size = {size}: expected a divisor of the {world} ranks, and"
            " less, for there are replicas"
        )
    if size == shards.local_world_size:
        return shards.intra, copies.cross
    sharing = own_group(shards, [range(start, start + size) for start in range(0, world, size)])
    return sharing, own_group(copies, [range(start, world, size) for start in range(size)])


async def _divide(rank: Rank, tensor: Tensor, factor: float, label: str) -> None:
    if factor != 1:
        numel = tensor.numel()
        kernel = cost("elementwise", tensor, flops=numel, read=numel, written=numel)
        await compute(rank, kernel, tensor.div_, factor, label=label, role=REDUCTION)
