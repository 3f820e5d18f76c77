"""A forward pass's data for its backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only, tree_unflatten

from scenarios.modules.paused_autograd import Paused
from scenarios.modules.trace import Arguments, TensorSpec, Trace, tensors_of


@dataclass(slots=True, eq=False)
class Tape:
    """A forward pass's arguments, and its outputs before and after detaching; without values, `outputs` is empty."""

    arguments: Arguments
    late: tuple[int, ...]
    outputs: list[Tensor]
    detached: list[Tensor]

    @classmethod
    def of(cls, traced: Trace, arguments: Arguments, late: tuple[int, ...], running: Paused | None) -> tuple[Tape, Any]:
        """Return the tape of a pass that has ended, and its detached result; without `running` both have no values."""
        if running is None:
            leaves = [empty(each) if isinstance(each, TensorSpec) else each for each in traced.outputs]
            result = tree_unflatten(leaves, traced.layout)
            return cls(arguments, late, [], tensors_of(result)), result
        outputs, result = tensors_of(running.result), tree_map_only(Tensor, Tensor.detach, running.result)
        return cls(arguments, late, outputs, tensors_of(result)), result

    def select_outputs(self, gradients: Mapping[int, Tensor | None]) -> list[bool | None]:
        """Return for each output whether `gradients`, by `id`, has its gradient; None: it is not differentiated."""
        return [gradients[id(each)] is not None if id(each) in gradients else None for each in self.detached]

    def starts(self, gradients: Mapping[int, Tensor | None]) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return the outputs that are differentiated, and their gradients."""
        pairs = zip(self.outputs, self.detached, strict=True)
        found = [(own, gradients[id(each)]) for own, each in pairs if id(each) in gradients]
        return [output for output, _ in found], [gradient for _, gradient in found]


def empty(spec: TensorSpec) -> Tensor:
    """Return a tensor without values."""
    return torch.empty(spec.shape, dtype=spec.dtype, device="meta")


def gradient_of(tensor: Tensor) -> Tensor:
    """Return the gradient of a tensor that has one."""
    assert tensor.grad is not None, "it is ready"
    return tensor.grad
