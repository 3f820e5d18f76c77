"""An operator that was made from its description, ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Made:
    """An operator on a device's tensors: `run` runs it once, below autograd, and nothing else.

    `is_tf32`: products of float32 are rounded to TF32 while it runs. `waits`: its host waits for the device, so that
    it cannot be ahead. `needed_bytes` are those of its tensors, results included as far as they are large.
    """

    run: Run
    is_tf32: bool = False
    waits: bool = False
    needed_bytes: int = 0
