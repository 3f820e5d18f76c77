"""Precision of a module's training beside its dtypes: the scale of its losses, and TF32.

Losses are scaled as torch.amp.GradScaler does it: gradients are divided by the scale, and steps that overflow left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

LossScaling = float | Literal["dynamic"]


class LossScaler:
    """A scale that stays, or torch's "dynamic" one: 65536, halved by each step that overflows, doubled after 2000.

    All ranks have the same: gradients that were averaged over ranks are finite on all of them, or on none.
    """

    def __init__(self, scaling: LossScaling, device: torch.device) -> None:
        self._is_dynamic = scaling == "dynamic"
        given = {} if scaling == "dynamic" else {"init_scale": float(scaling)}
        self._scaler = torch.amp.GradScaler(device.type, **given)  # type: ignore[arg-type]
        self.scale = self._scaler.get_scale()
        self._scaler.scale(torch.ones((), device=device))  # makes the scale on the device

    def scaled(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of losses, times the scale."""
        return [self._scaler.scale(each) for each in gradients]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of its parameters by the scale, and see whether they are finite."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """A step of the optimizer if they are; and the next scale."""
        self._scaler.step(optimizer)
        self._scaler.update(None if self._is_dynamic else self.scale)
        self.scale = self._scaler.get_scale()


def round_products(tf32: bool | None) -> None:
    """Let GPUs round what products of float32 are made of to TF32, or not; None leaves it as it is.

    Torch knows it for a whole process.
    """
    if tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = tf32


@contextmanager
def products_of_float32(tf32: bool | None) -> Iterator[None]:
    """Let GPUs round products of float32 to TF32, or not, while this is entered; None: as torch says."""
    before = torch.backends.cuda.matmul.allow_tf32
    round_products(tf32)
    try:
        yield
    finally:
        round_products(None if tf32 is None else before)
