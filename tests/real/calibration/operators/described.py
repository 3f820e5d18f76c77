"""What a call of torch is described as, by the same code as a script's calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.modules.operators import price
from scenarios.modules.precision import rounding_to_tf32
from scenarios.seam.operations.operation import Operation


class Describing(TorchDispatchMode):
    """A mode that collects the descriptions of all operators, as if they ran on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Run an operator and describe it."""
        result = func(*args, **(kwargs or {}))
        kernel, _ = price(func, args, kwargs or {}, result, on_gpu=True)
        self.found += [] if kernel is None else kernel.operations
        return result


def describe(run: Callable[[], object], *, is_tf32: bool = False) -> list[Operation]:
    """Return the descriptions of all that a call runs."""
    with rounding_to_tf32(products=is_tf32, convolutions=is_tf32), Describing() as mode:
        run()
    return mode.found
