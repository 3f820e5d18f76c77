"""Precision of a module's training apart from its dtypes: loss scaling, and TF32.

Losses are scaled as in torch.amp.GradScaler: gradients are divided by the scale, and overflowing steps are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

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

    def scale_gradients(self, gradients: Sequence[Tensor]) -> list[Tensor]:
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


def rounds_to_tf32() -> tuple[bool, bool]:
    """Return whether a GPU rounds float32 to TF32 in products of matrices, and whether in convolutions."""
    # Not `allow_tf32`, which raises once a process has set `fp32_precision`.
    of: Callable[[str, str], str] = torch._C._get_fp32_precision_getter
    return of("cuda", "matmul") == "tf32", of("cuda", "conv") == "tf32"


@contextmanager
def rounding_to_tf32(*, products: bool | None = None, convolutions: bool | None = None) -> Iterator[None]:
    """Set whether GPUs round float32 to TF32 while entered; None leaves torch's setting."""
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    # torch keeps two records of a setting: setting the legacy one also sets the other, which is restored last.
    legacy = [(each, _allows(each)) for each in (matmul, cudnn)]
    precise = [(each, each.fp32_precision) for each in (matmul, cudnn.conv, cudnn.rnn)]
    for each, rounds in (matmul, products), (cudnn, convolutions):
        if rounds is not None:
            each.allow_tf32 = rounds
    try:
        yield
    finally:
        for each, before in legacy:
            if before is not None:
                each.allow_tf32 = before
        for each, said in precise:
            each.fp32_precision = said


def _allows(backend: Any) -> bool | None:
    """Return the legacy setting; None where it cannot be read, as the process has set `fp32_precision`."""
    try:
        # torch raises if the new setting was used for some operators, which the old one cannot express.
        return bool(backend.allow_tf32)
    except RuntimeError:
        return None
