"""A rank's copy of a module: its passes as computations, its gradients reduced during the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from scenarios.modules.buffers import broadcast_buffers
from scenarios.modules.ddp_buckets import GradientReducer
from scenarios.modules.fully_sharded.units import Mark
from scenarios.modules.late_arguments import Needs
from scenarios.modules.paused_autograd import Paused, PausedBackward
from scenarios.modules.precision import LossScaler, round_products
from scenarios.modules.tape import Tape, empty, gradient_of
from scenarios.modules.trace import Arguments, Ready, Trace, tensors_of, trainable, wanting
from scenarios.seam.backend import Work
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.roles import DENSE, OPTIMIZER, REDUCTION, SCALING

if TYPE_CHECKING:
    from scenarios.modules.module import Module


class Replica:
    """A module on a rank: call it, then `backward`, then `update`.

        loss = await replica(features, labels)
        await replica.backward(loss)
        await replica.update()

    Attributes:
        module: the module itself; None where payload has no values.
        parameters: those that require gradients; none where payload has no values.
        scaler: the loss scale; None if there is none, or no values.
    """

    def __init__(self, model: Module, rank: Rank) -> None:
        self._model, self._rank = model, rank
        self._side = rank.stream(f"{model.name}.gradients") if model.reduce else None
        is_meta = rank.device.type == "meta"
        self.module = None if is_meta else model.build(rank.device)
        self.parameters: list[Tensor] = trainable(self.module)
        for index, parameter in enumerate(self.parameters):
            # Post-accumulate hooks run once `.grad` is complete, also where several uses of a parameter add up.
            parameter.register_post_accumulate_grad_hook(self._noting(parameter=index))
        if not is_meta:
            self.parameters = self._optimized_tensors(self.parameters)
        if rank.device.type == "cuda":
            round_products(model.tf32)
        scaling = None if is_meta else model.loss_scaling
        self.scaler = None if scaling is None else LossScaler(scaling, rank.device)
        self._optimizer = None if is_meta or model.optimizer is None else model.optimizer(self.parameters)
        self._reducer: GradientReducer | None = None
        self._members: Sequence[Sequence[int]] = ()
        self._tapes: dict[int, Tape] = {}
        self._called = 0
        self._coming: dict[int, tuple[Tensor, Awaitable[Tensor]]] = {}
        self._expected: tuple[int, ...] = ()
        self._running_forward: Paused | None = None
        self._running: PausedBackward | None = None
        self._reduced: list[Work[Any]] = []
        self._accumulates = False

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the forward pass and return its result, detached from autograd's graph.

        Tensors among the arguments that require gradients must be leaves; `backward` puts their gradients into `.grad`.

        Raises:
            ProgramError: an argument was computed under autograd.
        """
        for wants in wanting((arguments, named)):
            if not wants.is_leaf:
                raise ProgramError(
                    f"{self}: an argument of shape {tuple(wants.shape)} was computed under autograd: expected one that"
                    " is detached and then requires its gradient"
                )
        given = tensors_of((arguments, named))
        late = tuple(index for index, each in enumerate(given) if id(each) in self._coming)
        traced = self._model.traced((arguments, named), late=late)
        if traced.unknown and self._rank.rank == 0:
            self._model.note_unknown(traced)
        if self._model.broadcasts_buffers and traced.buffers and not self._accumulates:
            await broadcast_buffers(self._rank, self._model.name, traced, self.module)
        # Outputs are kept by id, and the tape keeps them alive, so that ids stay unique until `backward`.
        tape, result = await self._forward(traced, (arguments, named), late)
        self._tapes.update((id(each), tape) for each in tape.detached)
        return result

    def later(
        self, work: Awaitable[Tensor], *shape: int, dtype: torch.dtype = torch.float32, requires_grad: bool = False
    ) -> Tensor:
        """Return an argument for the next call with the values of `work`; the pass waits for it at its first use."""
        device = self._rank.device
        argument = torch.empty(shape if device.type == "meta" else (), dtype=dtype, device=device)
        argument = argument.expand(shape).requires_grad_(requires_grad)  # needs no memory until its values arrive
        self._coming[id(argument)] = argument, work
        return argument

    async def backward(
        self,
        outputs: Tensor | Sequence[Tensor],
        gradients: Tensor | Sequence[Tensor | None] | None = None,
        *,
        ready: Mapping[Tensor, Callable[[Tensor], object]] | None = None,
        sync: bool = True,
        also: Callable[[], Awaitable[Sequence[Tensor]]] | None = None,
    ) -> None:
        """Run the backward pass of one forward pass, as `torch.autograd.backward` does.

        Args:
            outputs: outputs of one call; its other outputs are not differentiated.
            gradients: of each output; None for a single number, whose gradient is 1.
            ready: maps arguments to functions of their gradient, called (and awaited) as soon as it is ready.
            sync: whether gradients are complete, so that full buckets are reduced; else the next pass adds to them.
            also: returns, after the pass, further tensors of this rank to be summed over all ranks in the call that
                reduces the buckets, if there is only one; `update` waits for the sums.

        Raises:
            ProgramError: these are not the outputs of one call, or there are parameters without a gradient.
        """
        tape, by_output = self._tape_of(outputs, gradients)
        chosen = tape.select_outputs(by_output)
        traced = self._model.traced(tape.arguments, chosen, accumulates=self._accumulates, late=tape.late)
        if self.module is not None:
            self._running = PausedBackward(*tape.starts(by_output), then=self._finish_backward)
        self._accumulates = not sync
        inputs = wanting(tape.arguments)
        if self.module is None:
            for index in (each.input for each in traced.ready if each.input >= 0):
                inputs[index].grad = torch.empty_like(inputs[index], requires_grad=False)
        hooks = [
            each.register_post_accumulate_grad_hook(self._noting(input=index)) for index, each in enumerate(inputs)
        ]
        try:
            reducer = self._reducer_of(traced) if sync else None
            await self._play(traced, inputs, ready or {}, reducer)
            if reducer is not None and self._model.groups_reductions:
                reducer.reduce_together([] if also is None else await also())
        finally:
            if self._running is not None:
                self._running.advance(None)  # frees a thread that is blocked at its last stop
            self._running = None
            for hook in hooks:
                hook.remove()

    async def update(self) -> None:
        """Wait for averaged gradients, if they are averaged, and run the optimizer; gradients are None afterwards."""
        if self._reducer is not None:
            averaged = await self._reducer.finish()
            # Not strict: without values there are gradients, but no parameters.
            for parameter, gradient in zip(self.parameters, averaged, strict=False):
                parameter.grad = gradient
        for work in self._reduced:
            await work
        self._reduced = []
        if self._model.optimizer is not None:
            if self._model.loss_scaling is not None:
                await self._rank.compute(
                    self._model.unscaled, self._unscale, label=f"{self._model.name}.unscale", role=SCALING
                )
            await self._rank.compute(
                self._update_kernel(), self._step, label=f"{self._model.name}.update", role=OPTIMIZER
            )
        for parameter in self.parameters:
            parameter.grad = None

    def __str__(self) -> str:
        return f"rank {self._rank.rank}: module {self._model.name}"

    async def _forward(self, traced: Trace, arguments: Arguments, late: tuple[int, ...]) -> tuple[Tape, Any]:
        """Run the forward pass in segments, each of which ends where it needs a late argument."""
        given, segments, label = tensors_of(arguments), traced.forward_segments, f"{self._model.name}.forward"
        running = None if self.module is None else self._pass(arguments, late)
        self._called += 1
        for number, segment in enumerate(segments):
            self._expected = segment.needs
            if segment.kernel.launches or len(segments) == 1:
                own = label if len(segments) == 1 else f"{label}.{number}"
                await self._rank.compute(segment.kernel, self._go_on, running, number, label=own, role=DENSE)
            else:
                self._go_on(running, number)
            for index in segment.needs:
                await self._arrive(given[index])
        return await self._tape(traced, arguments, late, running)

    async def _tape(
        self, traced: Trace, arguments: Arguments, late: tuple[int, ...], running: Paused | None
    ) -> tuple[Tape, Any]:
        """End a forward pass, and wait for late arguments that it did not use."""
        given = tensors_of(arguments)
        for index in late:
            await self._arrive(given[index])
        return Tape.of(traced, arguments, late, running)

    def _pass(self, arguments: Arguments, late: tuple[int, ...]) -> Paused:
        """Return the module's forward, which stops where it needs a late argument."""
        assert self.module is not None
        given, module = tensors_of(arguments), self.module
        arrived: set[int] = set()

        def note_needed(tensors: list[int]) -> None:
            wanted = {late[index] for index in tensors}
            if wanted <= arrived:
                return
            if not wanted <= set(self._expected):
                raise ProgramError(f"{self}: it uses its late arguments in another order than when it was traced")
            arrived.update(self._expected)
            running.stop()

        def run() -> Any:
            with (
                torch.enable_grad(),
                Needs([given[index] for index in late], note_needed) as needs,
                self._watching(needs),
            ):
                return module(*arguments[0], **arguments[1])

        running = self._running_forward = Paused(run, self._rank.device, stops=self._stops(late))
        return running

    def _stops(self, late: tuple[int, ...]) -> bool:
        """Return whether a forward pass may stop before its end."""
        return bool(late)

    def _optimized_tensors(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return the tensors that the optimizer changes in place of the module's parameters."""
        return parameters

    def _update_kernel(self) -> Kernel:
        return self._model.updated.kernel

    def _watching(self, needs: Needs) -> AbstractContextManager[object]:
        """Return a context that watches the module during its forward pass."""
        return nullcontext()

    def _finish_backward(self) -> None:
        """End a backward pass, in autograd's thread."""

    def _go_on(self, running: Paused | None, number: int) -> None:
        if running is not None:
            with self._drawing(number):
                running.advance()

    async def _arrive(self, tensor: Tensor) -> None:
        """Wait for a late argument's values and set them."""
        coming = self._coming.pop(id(tensor), None)
        if coming is not None:
            value = await coming[1]
            if value.shape != tensor.shape or value.dtype != tensor.dtype:
                raise ProgramError(
                    f"{self}: a late argument is {tuple(value.shape)} {value.dtype}, expected {tuple(tensor.shape)}"
                    f" {tensor.dtype}"
                )
            if not tensor.is_meta:
                # Set through `.data`: the module already has this tensor, and autograd must not record a copy.
                tensor.data = value

    @contextmanager
    def _drawing(self, segment: int) -> Iterator[None]:
        """Seed the module's random draws (dropout) equally in every world; a GPU's generator is not seeded."""
        if self._rank.device.type != "cpu":
            yield
            return
        numbers = np.random.SeedSequence([self._model.seed, self._rank.rank, self._called, segment]).generate_state(1)
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed visits every kind of device: 0.1 ms
            torch.default_generator.manual_seed(int(numbers[0]))
            yield

    def _tape_of(
        self, outputs: Tensor | Sequence[Tensor], gradients: Tensor | Sequence[Tensor | None] | None
    ) -> tuple[Tape, dict[int, Tensor | None]]:
        """Remove and return the tape of the pass with these outputs, and their gradients by `id` of the output."""
        wanted = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        given = [gradients] if isinstance(gradients, Tensor) else list(gradients or [None] * len(wanted))
        tapes = [self._tapes.get(id(output)) for output in wanted]
        tape = tapes[0] if tapes else None
        if tape is None or any(other is not tape for other in tapes):
            raise ProgramError(f"{self}: backward: expected outputs of one call that has not been differentiated")
        # A tape serves one backward pass, and these ids may belong to other tensors later.
        for output in tape.detached:
            del self._tapes[id(output)]
        return tape, {id(output): gradient for output, gradient in zip(wanted, given, strict=True)}

    def _reducer_of(self, traced: Trace) -> GradientReducer | None:
        """Return the reducer, created at the first backward pass, whose order fills buckets, as DDP rebuilds them."""
        model = self._model
        if self._side is None or not traced.parameters:
            return None
        if traced.unused and not model.may_have_unused:
            names = ", ".join(traced.parameters[index].name for index in traced.unused)
            raise ProgramError(f"{self}: no gradient for {names}: expected find_unused_parameters = True")
        if self._reducer is None:
            self._members = model.buckets_of(traced)
            self._reducer = GradientReducer(
                self._side,
                [each.shape for each in traced.parameters],
                dtype=[each.dtype for each in traced.parameters],
                compression=model.compression,
                assigned=self._members,
                label=f"{model.name}.gradients",
                grouped=model.groups_reductions,
            )
        return self._reducer

    async def _play(
        self,
        traced: Trace,
        inputs: Sequence[Tensor],
        ready: Mapping[Tensor, Callable[[Tensor], object]],
        reducer: GradientReducer | None,
    ) -> None:
        """Run the pass, stopping at each gradient that a reduction or a function waits for."""
        waited = {index for index, each in enumerate(inputs) if any(each is key for key in ready)}
        stops = _last_of_buckets(traced, self._members if reducer is not None else ())
        stops.update(each for each in traced.ready if each.input in waited)
        segments, label = traced.segments(frozenset(stops)), f"{self._model.name}.backward"
        unused = list(traced.unused) if reducer is not None else []
        arriving = iter(traced.ready)
        for number, segment in enumerate(segments):
            own = label if len(segments) == 1 else f"{label}.{number}"
            await self._rank.compute(segment.kernel, self._advance, segment.ready, label=own, role=DENSE)
            for each in arriving:
                if each.parameter >= 0 and reducer is not None:
                    while unused:  # DDP marks unused parameters as ready with the first gradient
                        reducer.add(unused[0], self._zeros(traced, unused.pop(0)))
                    reducer.add(each.parameter, self._gradient(traced, each.parameter))
                elif each.input in waited:
                    await self._tell(ready, inputs[each.input])
                if each is segment.ready:
                    break
        if reducer is not None and self._model.finds_unused:
            assert self._side is not None
            # On the side stream, behind the last bucket, as in DDP.
            self._reduced.append(self._side.spawn(self._sum_used(len(traced.parameters))))

    async def _tell(self, ready: Mapping[Tensor, Callable[[Tensor], object]], given: Tensor) -> None:
        """Pass an argument's gradient to the function that waits for it."""
        result = next(send for key, send in ready.items() if key is given)(gradient_of(given))
        if isawaitable(result):
            await result

    def _advance(self, stop: Ready | Mark | None) -> None:
        running = self._running
        if running is None:
            return
        running.advance(stop)
        if stop is not None and not running.is_there(stop):
            raise ProgramError(f"{self}: the backward pass gave other gradients than the module that was traced")

    def _noting(self, *, parameter: int = -1, input: int = -1) -> Callable[[Tensor], None]:
        replica = weakref.ref(self)  # torch keeps the hook with the tensor, where Python sees no cycle

        def note(_: Tensor) -> None:
            own = replica()
            if own is not None and own._running is not None:
                own._running.has_arrived(parameter=parameter, input=input)

        return note

    def _gradient(self, traced: Trace, index: int) -> Tensor:
        return gradient_of(self.parameters[index]) if self.parameters else empty(traced.parameters[index])

    def _zeros(self, traced: Trace, index: int) -> Tensor:
        spec = traced.parameters[index]
        return torch.zeros(spec.shape, dtype=spec.dtype, device=self._rank.device)

    async def _sum_used(self, parameters: int) -> None:
        """Reduce which parameters any rank has used, as DDP does after the last bucket to find unused ones."""
        assert self._side is not None
        used = torch.ones(parameters, dtype=torch.int32, device=self._rank.device)
        await self._side.all_reduce(used, label=f"{self._model.name}.gradients.used", role=REDUCTION)

    def _unscale(self) -> None:
        if self.scaler is not None and self._optimizer is not None:
            self.scaler.unscale(self._optimizer)

    def _step(self) -> None:
        if self.scaler is not None and self._optimizer is not None:
            self.scaler.step(self._optimizer)
        elif self._optimizer is not None:
            self._optimizer.step()


def _last_of_buckets(traced: Trace, members: Sequence[Sequence[int]]) -> set[Ready]:
    bucket_of = {index: number for number, bucket in enumerate(members) for index in bucket}
    last = {bucket_of[each.parameter]: each for each in traced.ready if each.parameter in bucket_of}
    return set(last.values())
