"""Traces a forward and backward pass of a module: its operators, their costs, and when each gradient is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map_only

from scenarios.modules.fake import build_fake, explain_error, fake
from scenarios.modules.fully_sharded.units import Mark, Unit, UnitMarks
from scenarios.modules.fusion import Fusion, fused_kernels, fusing_groups, recompute
from scenarios.modules.late_arguments import Needs
from scenarios.modules.recorder import Operator, Recorder
from scenarios.seam.host_work import total
from scenarios.seam.kernel import Kernel, together

# Owners of tensors of the backward pass: gradients of parameters and inputs, and all others.
GRADIENTS, TEMPORARIES = "(gradients)", "(temporaries)"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # by position and by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A gradient that is ready after the first `after` operators of the backward pass.

    `parameter` or `input` is the index of its tensor; the other is -1.
    """

    after: int
    parameter: int = -1
    input: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A first use, after `after` operators, of some tensors: indices among all tensors that a module is called with."""

    after: int
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor without its values; `name` is a parameter's path in the module."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardSegment:
    """A sequence of the backward pass's operators, up to the gradient `ready`; None: to the pass's end."""

    kernel: Kernel
    ready: Ready | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSegment:
    """A sequence of operators of the forward pass up to the first use of `needs`; empty: up to the pass's end."""

    kernel: Kernel
    needs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A forward and a backward pass.

    Attributes:
        forward, backward: the operators, in order.
        outputs: the leaves of the forward pass's result, tensors as a TensorSpec; `layout` restores its structure.
        gradients: for each output tensor, whether its gradient is given (True) or 1 (False); None: not differentiated.
        needs: first uses of late tensors, in order.
        ready: gradients in the order in which they are ready.
        parameters: all parameters that require gradients, in the order of registration.
        buffers: its buffers, such as the running means of batch normalization.
        state_bytes: bytes of all its parameters and buffers.
        unused: indices of parameters without a gradient.
        unknown: operators that are priced by their bytes alone.
        kept_bytes: bytes that the forward pass keeps for the backward pass, by the module that created them.
        forward_peak_bytes: the forward pass's peak of tensors other than parameters and inputs.
        held_at_peak: bytes at the backward pass's peak: of `kept_bytes`, and of GRADIENTS and TEMPORARIES.
        fuses: how operators are fused in costs.
        marks: positions of both passes at units of a fully sharded module; else empty.
        numbers: tensor numbers of the parameters' storages, as operators use them.
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
    held_at_peak: dict[str, int]
    fuses: Fusion = ""
    marks: tuple[tuple[Mark, ...], tuple[Mark, ...]] = ((), ())
    numbers: tuple[int, ...] = ()
    _segments: dict[frozenset[Ready], tuple[BackwardSegment, ...]] = field(default_factory=dict, repr=False)

    @property
    def flops(self) -> float:
        """Flops of both passes."""
        return sum(each.kernel.flops for each in (*self.forward, *self.backward))

    @property
    def arrival(self) -> tuple[int, ...]:
        """Indices of parameters, in the order in which their gradients are ready."""
        return tuple(each.parameter for each in self.ready if each.parameter >= 0)

    @cached_property
    def forward_segments(self) -> tuple[ForwardSegment, ...]:
        """Segments of the forward pass, each up to a first use of late tensors; the rest comes last.

        First uses without an operator in between are merged.
        """
        segments, begin = [], 0
        for after, needs in groupby(self.needs, lambda need: need.after):
            tensors = tuple(chain.from_iterable(need.tensors for need in needs))
            kernel = cost_of(self.forward[begin:after], fuses=self.fuses)
            segments.append(ForwardSegment(kernel=kernel, needs=tensors))
            begin = after
        return (*segments, ForwardSegment(kernel=cost_of(self.forward[begin:], fuses=self.fuses), needs=()))

    def segments(self, stops: frozenset[Ready]) -> tuple[BackwardSegment, ...]:
        """Cut the backward pass after each of `stops`, which are elements of `ready`; a rest, if any, comes last.

        Gradients that become ready with one operator are one stop, the last of them.
        """
        if stops not in self._segments:
            self._segments[stops] = tuple(self._cut(stops))
        return self._segments[stops]

    def _cut(self, stops: frozenset[Ready]) -> Iterator[BackwardSegment]:
        begin, last = 0, {ready.after: ready for ready in self.ready if ready in stops}
        for after, ready in last.items():
            yield BackwardSegment(kernel=cost_of(self.backward[begin:after], fuses=self.fuses), ready=ready)
            begin = after
        if begin < len(self.backward) or not last:
            yield BackwardSegment(kernel=cost_of(self.backward[begin:], fuses=self.fuses), ready=None)


def cost_of(operators: Sequence[Operator], *, fuses: Fusion = "") -> Kernel:
    """Return all operators as one computation, fused or not; fused code leaves the host no work per operator.

    A fused kernel belongs to the module of its first operator.
    """
    if fuses:
        groups = fusing_groups(operators, epilogues=fuses == "epilogues")
        made = [(kernel, _layer(group[0])) for group in groups for kernel in fused_kernels(group)]
        return together((kernel for kernel, _ in made), [layer for _, layer in made])
    kernel = together((each.kernel for each in operators), list(map(_layer, operators)))
    return replace(kernel, host=total(each.host for each in operators))


def _layer(operator: Operator) -> str:
    """Return the path of an operator's module below the outermost one; that one's class for its own operators."""
    return operator.module.partition(".")[2] or operator.module


def trace(
    make: Callable[[], Any],
    name: str,
    arguments: Arguments,
    *,
    on_gpu: bool,
    gradients: Sequence[bool | None] | None = None,
    accumulates: bool = False,
    late: Sequence[int] = (),
    fuses: Fusion = "",
    units: Sequence[Unit] = (),
) -> Trace:
    """Trace a forward and backward pass of the module or function that `make` builds.

    Only shapes and types of arguments matter. Parameters and arguments that require gradients get them.

    Args:
        make: builds the module or function.
        name: of the module, for messages.
        arguments: by position and by name.
        on_gpu: whether it will run on a GPU, where attention, dropout and autocast differ.
        gradients: for each output tensor, whether its gradient is given (True) or 1 (False); None: not differentiated.
            By default outputs of one element are losses, with gradient 1, and no others are differentiated; if there
            are none, gradients of all outputs are given.
        accumulates: whether gradients are added to existing ones.
        late: indices, among all tensors of the call, of those that may arrive during the forward pass.
        fuses: how operators are fused in costs.
        units: of a fully sharded module.

    Raises:
        ProgramError: the module depends on values, or an operator cannot run without values.
    """
    with fake(on_gpu=on_gpu), explain_error(name):
        module = build_fake(make)
        given = tree_map_only(Tensor, _without_values, arguments)
        # Tensors that exist before the pass do not count as its memory.
        there = [*state(module), *tensors_of(given)]
        for parameter in trainable(module) if accumulates else ():
            parameter.grad = torch.empty_like(parameter)
            there.append(parameter.grad)
        recorder = Recorder(on_gpu=on_gpu)
        recorder.knows(there)
        with recorder:
            traced, outputs = _passes(recorder, module, given, gradients=gradients, late=late, units=units)
    if fuses == "compiled":
        traced = replace(traced, backward=recompute(traced.forward, traced.backward, outputs))
    return replace(traced, fuses=fuses)


def _passes(
    recorder: Recorder,
    module: Any,
    given: Arguments,
    *,
    gradients: Sequence[bool | None] | None,
    late: Sequence[int],
    units: Sequence[Unit],
) -> tuple[Trace, set[int]]:
    """Run both passes under the recorder, on tensors without values; also return the numbers of the outputs."""
    needs: list[Need] = []
    state_bytes = size_of(state(module))
    marks = UnitMarks(recorder, trainable(module), units, needs)
    result = _forward(recorder, module, given, late=late, marks=marks, needs=needs)
    outputs, parameters = tensors_of(result), trainable(module)
    chosen = _losses(outputs) if gradients is None else tuple(gradients)
    forward = tuple(recorder.operators)
    kept, forward_peak = {key: size for key, size in recorder.held_by.items() if size}, recorder.peak_bytes
    # The backward pass's own tensors count from here: those of the forward pass still belong to their modules.
    recorder.begin_phase(TEMPORARIES)
    ready: list[Ready] = []
    marks.turn(ready)
    _backward(recorder, (parameters, wanting(given)), outputs, chosen, ready=ready)
    marks.finish()
    recorder.settle()
    arrived = {each.parameter for each in ready}
    leaves, layout = tree_flatten(result)
    traced = Trace(
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
        held_at_peak={key: size for key, size in recorder.held_at_peak.items() if size},
        marks=(tuple(marks.forward), tuple(marks.backward)),
        numbers=tuple(recorder.number_of(each) for each in parameters) if units else (),
    )
    return traced, set(map(recorder.number_of, outputs))


def _forward(
    recorder: Recorder, module: Any, given: Arguments, *, late: Sequence[int], marks: UnitMarks, needs: list[Need]
) -> Any:
    """Run the forward pass, and record in `needs` where late tensors are first used."""

    def note_needed(tensors: list[int]) -> None:
        needs.append(Need(after=len(recorder.operators), tensors=tuple(late[index] for index in tensors)))

    with Needs([tensors_of(given)[index] for index in late], note_needed) as watched, marks.watching(module, watched):
        return module(*given[0], **given[1])


def _losses(outputs: Sequence[Tensor]) -> tuple[bool | None, ...]:
    """Return the default for `gradients`: losses if there are any, else all outputs."""
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
    """Run the backward pass, and record the gradients of parameters and inputs as they become ready."""
    begun = len(recorder.operators)

    def hook_for(**which: int) -> Callable[[Tensor], None]:
        def note(leaf: Tensor) -> None:
            ready.append(Ready(after=len(recorder.operators) - begun, **which))
            if leaf.grad is not None:
                recorder.belongs(leaf.grad, GRADIENTS)

        return note

    for kind, those in zip(("parameter", "input"), leaves, strict=True):
        for index, leaf in enumerate(those):
            leaf.register_post_accumulate_grad_hook(hook_for(**{kind: index}))
    starts = [(each, gradient) for each, gradient in zip(outputs, gradients, strict=True) if gradient is not None]
    with torch.utils._python_dispatch._pop_mode_temporarily():  # given gradients are not part of the pass
        given = [torch.empty_like(each) if is_given else None for each, is_given in starts]
    if starts:
        torch.autograd.backward([each for each, _ in starts], given)


def wanting(arguments: Any) -> list[Tensor]:
    """Return the tensors that require gradients."""
    return [each for each in tensors_of(arguments) if each.requires_grad]


def trainable(module: object) -> list[Tensor]:
    """Return the parameters that require gradients, in the order of registration, each once."""
    return [each for each in module.parameters() if each.requires_grad] if isinstance(module, nn.Module) else []


def names_of(module: object) -> list[str]:
    """Return the names of the parameters that `trainable` returns."""
    named = module.named_parameters() if isinstance(module, nn.Module) else ()
    return [name for name, each in named if each.requires_grad]


def buffers_of(module: object) -> list[Tensor]:
    """Return the buffers of a module and its submodules, each once."""
    return list(module.buffers()) if isinstance(module, nn.Module) else []


def state(module: object) -> list[Tensor]:
    """Return all parameters and buffers."""
    return [*module.parameters(), *buffers_of(module)] if isinstance(module, nn.Module) else []


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of these tensors' storages, each counted once."""
    storages = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}
    return sum(storages.values())


def tensors_of(tree: Any) -> list[Tensor]:
    """Return the tensors in nested containers, in the order of `torch.utils._pytree`."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _without_values(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).requires_grad_(tensor.requires_grad)


def _spec(tensor: Tensor, name: str = "") -> TensorSpec:
    return TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype, name=name)
