"""Precision of a module's training apart from its dtypes: loss scaling, and TF32.

Losses are scaled as in torch.amp.GradScaler: gradients are divided by the scale, and overflowing steps are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

LossScaling = float | Literal["dynamic"]


class LossScaler:
    """A constant loss scale, or torch's "dynamic" one: 65536, halved by overflowing steps, doubled after 2000.

    The scale is equal on all ranks: averaged gradients are finite on all of them, or on none.
    """

    def __init__(self, scaling: LossScaling, device: torch.device) -> None:
        self._is_dynamic = scaling == "dynamic"
        given = {} if scaling == "dynamic" else {"init_scale": float(scaling)}
        self._scaler = torch.amp.GradScaler(device.type, **given)  # type: ignore[arg-type]
        self.scale = self._scaler.get_scale()
        self._scaler.scale(torch.ones((), device=device))  # allocates the scale on the device

    def scaled(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of losses, times the scale."""
        return [self._scaler.scale(each) for each in gradients]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and check that they are finite."""
        self._scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer if all gradients are finite, and set the next scale."""
        self._scaler.step(optimizer)
        # A constant scale is set again, as `update` would otherwise grow it.
        self._scaler.update(None if self._is_dynamic else self.scale)
        self.scale = self._scaler.get_scale()


def round_products(tf32: bool | None) -> None:
    """Set whether GPUs round products of float32 to TF32; None leaves torch's setting, which is one per process."""
    if tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = tf32


@contextmanager
def products_of_float32(tf32: bool | None) -> Iterator[None]:
    """Set whether GPUs round products of float32 to TF32 while entered; None leaves torch's setting."""
    before = torch.backends.cuda.matmul.allow_tf32
    round_products(tf32)
    try:
        yield
    finally:
        round_products(None if tf32 is None else before)
