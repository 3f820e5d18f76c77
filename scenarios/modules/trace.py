"""Traces one pass forward and back of a module: its operators, their costs, and when each gradient is ready."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from scenarios.modules.fake import build_fake, explained, fake
from scenarios.modules.recorder import Operator, Recorder
from scenarios.seam.errors import ProgramError
from scenarios.seam.kernel import Kernel, together


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A gradient that is there after the first `after` operators of the backward pass.

    `parameter` or `input` is the index of what it belongs to; the other is -1.
    """

    after: int
    parameter: int = -1
    input: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Operators of the backward pass after which the gradient `ready` is there; None: the rest."""

    kernel: Kernel
    ready: Ready | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A pass forward and back.

    Attributes:
        forward, backward: the operators, in order.
        outputs: what the forward pass returns, in the order of `torch.utils._pytree`.
        ready: gradients in the order in which they are ready.
        parameters: all parameters that require gradients, in the order of registration.
        unused: indices of those that get no gradient.
        unknown: operators that are priced by their bytes alone.
        kept_bytes: what the forward pass leaves for the backward pass, by the module that made it.
        forward_peak_bytes, backward_peak_bytes: what tensors take at most, beside parameters and inputs.
    """

    forward: tuple[Operator, ...]
    backward: tuple[Operator, ...]
    outputs: tuple[TensorSpec, ...]
    ready: tuple[Ready, ...]
    parameters: tuple[TensorSpec, ...]
    unused: tuple[int, ...]
    unknown: tuple[str, ...]
    kept_bytes: dict[str, int]
    forward_peak_bytes: int
    backward_peak_bytes: int

    @property
    def flops(self) -> float:
        """Of both passes."""
        return sum(each.kernel.flops for each in (*self.forward, *self.backward))

    @property
    def arrival(self) -> tuple[int, ...]:
        """Indices of parameters, in the order in which their gradients are ready."""
        return tuple(each.parameter for each in self.ready if each.parameter >= 0)

    def segments(self, stops: Collection[Ready]) -> Iterator[Segment]:
        """Cut the backward pass behind each of `stops`, which are of `ready`; the rest comes last, if there is any."""
        begin = 0
        for ready in self.ready:
            if ready in stops:
                yield Segment(kernel=cost_of(self.backward[begin : ready.after]), ready=ready)
                begin = ready.after
        if begin < len(self.backward) or not stops:
            yield Segment(kernel=cost_of(self.backward[begin:]), ready=None)


def cost_of(operators: Sequence[Operator]) -> Kernel:
    """All operators as one computation."""
    return together(each.kernel for each in operators)


def trace(make: Callable[[], Any], name: str, arguments: tuple[tuple[Any, ...], dict[str, Any]], *, on_gpu: bool) -> Trace:
    """Trace what `make` makes, a module or a function, called with these arguments; only their shapes and types count.

    Floating-point parameters and the arguments that require gradients get one; so does nothing where no output needs it.

    Raises:
        ProgramError: what it does depends on values, or an operator cannot run without them.
    """
    with fake(on_gpu=on_gpu), explained(name):
        module = build_fake(make)
        parameters = trainable(module)
        given = tree_map_only(Tensor, _without_values, arguments)
        inputs = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        recorder = Recorder(on_gpu=on_gpu)
        recorder.knows([*state(module), *inputs])
        with recorder:
            outputs = tensors_of(module(*given[0], **given[1]))
            forward = tuple(recorder.operators)
            kept, forward_peak = _positive(recorder.held_by), recorder.peak_bytes
            recorder.peak_bytes = recorder.held_bytes
            ready = _backward(recorder, parameters, inputs, [each for each in outputs if each.requires_grad])
        arrived = {each.parameter for each in ready}
        return Trace(
            forward=forward,
            backward=tuple(recorder.operators[len(forward) :]),
            outputs=tuple(map(_spec, outputs)),
            ready=tuple(ready),
            parameters=tuple(map(_spec, parameters)),
            unused=tuple(index for index in range(len(parameters)) if index not in arrived),
            unknown=tuple(recorder.unknown),
            kept_bytes=kept,
            forward_peak_bytes=forward_peak,
            backward_peak_bytes=recorder.peak_bytes,
        )


def _backward(recorder: Recorder, parameters: list[Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Ready]:
    """The gradients, as they become ready."""
    ready: list[Ready] = []
    if not outputs:
        return ready
    begun = len(recorder.operators)

    def noted(**which: int) -> Callable[[Tensor], None]:
        return lambda _: ready.append(Ready(after=len(recorder.operators) - begun, **which))

    for index, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(noted(parameter=index))
    for index, given in enumerate(inputs):
        if given.requires_grad:
            given.register_post_accumulate_grad_hook(noted(input=index))
    torch.autograd.backward(outputs, gradients_like(outputs))
    return ready


def gradients_like(outputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Gradients of outputs for which none is given: None for a single number, whose gradient is 1."""
    return [None if each.numel() == 1 else torch.ones_like(each) for each in outputs]


def trainable(module: object) -> list[Tensor]:
    """The parameters that require gradients, in the order of registration, each once."""
    return [each for each in module.parameters() if each.requires_grad] if isinstance(module, nn.Module) else []


def state(module: object) -> list[Tensor]:
    """All parameters and buffers."""
    return [*module.parameters(), *module.buffers()] if isinstance(module, nn.Module) else []


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors in nested containers, in the order of `torch.utils._pytree`."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _without_values(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype).requires_grad_(tensor.requires_grad)


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(shape=tuple(tensor.shape), dtype=tensor.dtype)


def _positive(held: dict[str, int]) -> dict[str, int]:
    return {module: size for module, size in held.items() if size}
