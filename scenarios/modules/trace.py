"""Traces one pass forward and back of a module: its operators, their costs, and when each gradient is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map_only

from scenarios.modules.fake import build_fake, explained, fake
from scenarios.modules.fully_sharded.units import Mark, Phase, Unit, UnitHooks
from scenarios.modules.fusion import fused
from scenarios.modules.needs import Needs
from scenarios.modules.recorder import Operator, Recorder
from scenarios.seam.host_work import total
from scenarios.seam.kernel import Kernel, together

# What holds tensors of the backward pass: gradients of parameters and inputs, and all else.
GRADIENTS, TEMPORARIES = "(gradients)", "(temporaries)"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # by position and by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A gradient that is there after the first `after` operators of the backward pass.

    `parameter` or `input` is the index of what it belongs to; the other is -1.
    """

    after: int
    parameter: int = -1
    input: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Tensors, by their indices among all that a module is called with, that it first uses after `after` operators."""

    after: int
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor without its values; `name` is a parameter's path in the module."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Operators of the backward pass after which the gradient `ready` is there; None: the rest."""

    kernel: Kernel
    ready: Ready | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSegment:
    """Operators of the forward pass after which it uses `needs` for the first time; none: the rest."""

    kernel: Kernel
    needs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A pass forward and back.

    Attributes:
        forward, backward: the operators, in order.
        outputs: the leaves of what the forward pass returns, tensors as a TensorSpec; `layout` puts them together.
        gradients: of each tensor among them whether its gradient is given, or is 1; None: it is not differentiated.
        needs: where tensors that were late are first used, in order.
        ready: gradients in the order in which they are ready.
        parameters: all parameters that require gradients, in the order of registration.
        buffers: its buffers, such as the running means of batch normalization.
        state_bytes: what all its parameters and buffers take.
        unused: indices of those that get no gradient.
        unknown: operators that are priced by their bytes alone.
        kept_bytes: what the forward pass leaves for the backward pass, by the module that made it.
        forward_peak_bytes, backward_peak_bytes: what tensors take at most, beside parameters and inputs.
        held_at_peak: what is there at the backward pass's peak: of `kept_bytes`, and GRADIENTS and TEMPORARIES.
        fuses: whether its computations are those of a compiler that fuses operators, in costs alone.
        marks: where both passes are at units of a fully sharded module; none of others.
        numbers: by which operators know the parameters' storages.
    """

    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    outputs: tuple[Any, ...]
    layout: TreeSpec
    gradients: tuple[bool | None, ...]
    needs: tuple[Need, ...]
    ready: tuple[Ready, ...]
    parameters: tuple[TensorSpec, ...]
    buffers: tuple[TensorSpec, ...]
    state_bytes: int
    unused: tuple[int, ...]
    unknown: tuple[str, ...]
    kept_bytes: dict[str, int]
    forward_peak_bytes: int
    backward_peak_bytes: int
    held_at_peak: dict[str, int]
    fuses: bool = False
    marks: tuple[tuple[Mark, ...], tuple[Mark, ...]] = ((), ())
    numbers: tuple[int, ...] = ()
    _segments: dict[frozenset[Ready], tuple[Segment, ...]] = field(default_factory=dict, repr=False)

    @property
    def flops(self) -> float:
        """Of both passes."""
        return sum(each.kernel.flops for each in (*self.forward, *self.backward))

    @property
    def arrival(self) -> tuple[int, ...]:
        """Indices of parameters, in the order in which their gradients are ready."""
        return tuple(each.parameter for each in self.ready if each.parameter >= 0)

    @cached_property
    def forward_segments(self) -> tuple[ForwardSegment, ...]:
        """The forward pass up to each place where it needs something that was late; the rest comes last.

        What it needs with no operator between is one place.
        """
        segments, begin = [], 0
        for after, needs in groupby(self.needs, lambda need: need.after):
            tensors = tuple(chain.from_iterable(need.tensors for need in needs))
            kernel = cost_of(self.forward[begin:after], fuses=self.fuses)
            segments.append(ForwardSegment(kernel=kernel, needs=tensors))
            begin = after
        return (*segments, ForwardSegment(kernel=cost_of(self.forward[begin:], fuses=self.fuses), needs=()))

    def segments(self, stops: frozenset[Ready]) -> tuple[Segment, ...]:
        """Cut the backward pass behind each of `stops`, which are of `ready`; what is left comes last, if anything is.

        Gradients that the same operator makes ready are one stop, the last of them.
        """
        if stops not in self._segments:
            self._segments[stops] = tuple(self._cut(stops))
        return self._segments[stops]

    def _cut(self, stops: frozenset[Ready]) -> Iterator[Segment]:
        begin, last = 0, {ready.after: ready for ready in self.ready if ready in stops}
        for after, ready in last.items():
            yield Segment(kernel=cost_of(self.backward[begin:after], fuses=self.fuses), ready=ready)
            begin = after
        if begin < len(self.backward) or not last:
            yield Segment(kernel=cost_of(self.backward[begin:], fuses=self.fuses), ready=None)


def cost_of(operators: Sequence[Operator], *, fuses: bool = False) -> Kernel:
    """All operators as one computation, with fusion or as they are; a compiler's code leaves the host little to do."""
    if fuses:
        return together(fused(operators))
    return replace(together(each.kernel for each in operators), host=total(each.host for each in operators))


def trace(
    make: Callable[[], Any],
    name: str,
    arguments: Arguments,
    *,
    on_gpu: bool,
    gradients: Sequence[bool | None] | None = None,
    accumulates: bool = False,
    late: Sequence[int] = (),
    fuses: bool = False,
    units: Sequence[Unit] = (),
) -> Trace:
    """Trace what `make` makes, a module or a function, called with these arguments; only their shapes and types count.

    Parameters and arguments that require gradients get theirs.

    Args:
        name: of the module, for messages.
        arguments: by position and by name.
        on_gpu: whether it is to run on a GPU, where attention, dropout and autocast differ.
        gradients: of each tensor among the outputs whether its gradient is given, or is 1; None: that one is not
            differentiated. By default outputs of one element are losses, whose gradient is 1, and no others are
            differentiated; if there are none, gradients of all outputs are given.
        accumulates: whether gradients are added to some that are there already.
        late: indices, among all tensors that it is called with, of those that may come while the forward pass goes on.
        fuses: whether costs are those of operators that a compiler fuses.
        units: of a fully sharded module.

    Raises:
        ProgramError: what it does depends on values, or an operator cannot run without them.
    """
    with fake(on_gpu=on_gpu), explained(name):
        module = build_fake(make)
        given = tree_map_only(Tensor, _without_values, arguments)
        there = [*state(module), *tensors_of(given)]
        for parameter in trainable(module) if accumulates else ():
            parameter.grad = torch.empty_like(parameter)
            there.append(parameter.grad)
        recorder = Recorder(on_gpu=on_gpu)
        recorder.knows(there)
        with recorder:
            traced = _passes(recorder, module, given, gradients=gradients, late=late, units=units)
    return replace(traced, fuses=fuses)


def _passes(
    recorder: Recorder,
    module: Any,
    given: Arguments,
    *,
    gradients: Sequence[bool | None] | None,
    late: Sequence[int],
    units: Sequence[Unit],
) -> Trace:
    """Run both passes under the recorder, on tensors without values."""
    needs: list[Need] = []
    state_bytes = size_of(state(module))
    marks = _Marks(recorder, trainable(module), units, needs)

    def needed(tensors: list[int]) -> None:
        needs.append(Need(after=len(recorder.operators), tensors=tuple(late[index] for index in tensors)))

    with Needs([tensors_of(given)[index] for index in late], needed) as watched, marks.watching(module, watched):
        result = module(*given[0], **given[1])
    outputs, parameters = tensors_of(result), trainable(module)
    chosen = _losses(outputs) if gradients is None else tuple(gradients)
    forward = tuple(recorder.operators)
    kept, forward_peak = {key: size for key, size in recorder.held_by.items() if size}, recorder.peak_bytes
    recorder.begin_phase(TEMPORARIES)
    ready = marks.turn()
    _backward(recorder, (parameters, wanting(given)), outputs, chosen, ready=ready)
    marks.finish()
    recorder.settle()
    arrived = {each.parameter for each in ready}
    leaves, layout = tree_flatten(result)
    return Trace(
        forward=forward,
        backward=tuple(recorder.operators[len(forward) :]),
        outputs=tuple(_spec(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves),
        layout=layout,
        gradients=chosen,
        needs=tuple(needs),
        ready=tuple(ready),
        parameters=tuple(map(_spec, parameters, names_of(module))),
        buffers=tuple(map(_spec, buffers_of(module))),
        state_bytes=state_bytes,
        unused=tuple(index for index in range(len(parameters)) if index not in arrived),
        unknown=tuple(recorder.unknown),
        kept_bytes=kept,
        forward_peak_bytes=forward_peak,
        backward_peak_bytes=recorder.peak_bytes,
        held_at_peak={key: size for key, size in recorder.held_at_peak.items() if size},
        marks=(tuple(marks.forward), tuple(marks.backward)),
        numbers=tuple(recorder.number_of(each) for each in parameters) if units else (),
    )


class _Marks:
    """Notes where both passes are at units, and lets go of a unit's gradients once its backward is over."""

    def __init__(
        self, recorder: Recorder, parameters: Sequence[Tensor], units: Sequence[Unit], needs: Sequence[Need]
    ) -> None:
        self.hooks: UnitHooks | None = None
        self.forward: list[Mark] = []
        self.backward: list[Mark] = []
        self._recorder, self._parameters, self._units = recorder, parameters, units
        self._made, self._begun = self.forward, 0
        self._seen: Sequence[Need] | Sequence[Ready] = needs

    def watching(self, module: Any, watched: Needs) -> AbstractContextManager[object]:
        """Watch where the module's forward pass is at units; nothing where there are none."""
        if self._units:
            self.hooks = UnitHooks(module, self._units, self.reached, watched.is_left)
        return self.hooks or nullcontext()

    def reached(self, phase: Phase, unit: int) -> None:
        after = len(self._recorder.operators) - self._begun
        mark = Mark(after=after, seen=len(self._seen), phase=phase, unit=unit, number=len(self._made))
        self._made.append(mark)
        for index in self._units[unit].parameters if phase == "post_backward" else ():
            self._parameters[index].grad = None

    def turn(self) -> list[Ready]:
        """From now on marks are those of the backward pass; what gradients are to be noted in."""
        ready: list[Ready] = []
        self._made, self._seen, self._begun = self.backward, ready, len(self._recorder.operators)
        return ready

    def finish(self) -> None:
        if self.hooks is not None:
            self.hooks.finish()


def _losses(outputs: Sequence[Tensor]) -> tuple[bool | None, ...]:
    """The gradients that are taken if nobody says which."""
    losses = [each.requires_grad and each.numel() == 1 for each in outputs]
    if any(losses):
        return tuple(False if is_loss else None for is_loss in losses)
    return tuple(True if each.requires_grad else None for each in outputs)


def _backward(
    recorder: Recorder,
    leaves: tuple[Sequence[Tensor], Sequence[Tensor]],
    outputs: Sequence[Tensor],
    gradients: Sequence[bool | None],
    *,
    ready: list[Ready],
) -> None:
    """Note the gradients of parameters and inputs, as they become ready."""
    begun = len(recorder.operators)

    def noted(**which: int) -> Callable[[Tensor], None]:
        def note(leaf: Tensor) -> None:
            ready.append(Ready(after=len(recorder.operators) - begun, **which))
            if leaf.grad is not None:
                recorder.belongs(leaf.grad, GRADIENTS)

        return note

    for kind, those in zip(("parameter", "input"), leaves, strict=True):
        for index, leaf in enumerate(those):
            leaf.register_post_accumulate_grad_hook(noted(**{kind: index}))
    starts = [(each, gradient) for each, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
    with torch.utils._python_dispatch._pop_mode_temporarily():
        given = [torch.empty_like(each) if is_given else None for each, is_given in starts]
    if starts:
        torch.autograd.backward([each for each, _ in starts], given)


def wanting(arguments: Any) -> list[Tensor]:
    """The tensors that require gradients."""
    return [each for each in tensors_of(arguments) if each.requires_grad]


def trainable(module: object) -> list[Tensor]:
    """The parameters that require gradients, in the order of registration, each once."""
    return [each for each in module.parameters() if each.requires_grad] if isinstance(module, nn.Module) else []


def names_of(module: object) -> list[str]:
    """The names of what `trainable` gives."""
    named = module.named_parameters() if isinstance(module, nn.Module) else ()
    return [name for name, each in named if each.requires_grad]


def buffers_of(module: object) -> list[Tensor]:
    """The buffers of a module and of those in it, each once."""
    return list(module.buffers()) if isinstance(module, nn.Module) else []


def state(module: object) -> list[Tensor]:
    """All parameters and buffers."""
    return [*module.parameters(), *buffers_of(module)] if isinstance(module, nn.Module) else []


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors' storages, each once."""
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}
    return sum(storages.values())


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors in nested containers, in the order of `torch.utils._pytree`."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _without_values(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).requires_grad_(tensor.requires_grad)


def _spec(tensor: Tensor, name: str = "") -> TensorSpec:
    return TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype, name=name)
