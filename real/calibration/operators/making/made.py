"""An operator created from its description, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Made:
    """An operator on a device's tensors.

    Attributes:
        run: runs the operator once, below autograd, and nothing else.
        is_tf32: whether products of float32 are rounded to TF32.
        waits: whether the host waits for the device, and so cannot run ahead.
        needed_bytes: bytes of the operator's tensors, large results included.
    """

    run: Run
    is_tf32: bool = False
    waits: bool = False
    needed_bytes: int = 0
