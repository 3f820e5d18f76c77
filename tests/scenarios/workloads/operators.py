"""Which operators each computation of a program dispatches, and the bytes that they touch; judging is for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.modules.operators import price
from scenarios.quantized import rows_host
from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel, PricedLater, price_now
from scenarios.seam.rank import Rank
from scenarios.sparse import kernels_host
from scenarios.workloads.dlrm.tables import embedding_cpu as embedding_host

# What numba compiled: it takes arrays, so no dispatcher sees it.
COMPILED = (
    *((kernels_host, name) for name in ("_assign", "_scatter", "_scatter_positions", "_number")),
    *(
        (rows_host, name)
        for name in ("int8_ranges", "int8_encode", "int8_decode", "fp8_scales", "fp8_encode", "fp8_decode")
    ),
    *((embedding_host, name) for name in ("look_up", "add", "adagrad", "adagrad_all")),
)


@dataclass
class Computed:
    """One call of `Rank.compute`: what its kernel declares, and what ran."""

    label: str
    kernel: Kernel
    operators: list[str] = field(default_factory=list)
    touched_bytes: int = 0
    is_compiled: bool = False

    @property
    def declared_bytes(self) -> float:
        return self.kernel.bytes_read + self.kernel.bytes_written


class Watch(TorchDispatchMode):
    """Below autograd, whose backward runs in the caller's thread on CPU tensors."""

    def __init__(self, computed: Computed) -> None:
        super().__init__()
        self._computed = computed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        kernel, _ = price(func, args, kwargs or {}, result, on_gpu=False)
        if kernel is not None:
            self._computed.operators.append(func.overloadpacket.__name__)
            self._computed.touched_bytes += int(kernel.bytes_read + kernel.bytes_written)
        return result


@contextmanager
def watch(patch: pytest.MonkeyPatch) -> Iterator[list[Computed]]:
    """All computations of simulated ranks, as they end."""
    found: list[Computed] = []
    running: list[Computed] = []
    issue = Rank.compute

    def compute(
        rank: Rank,
        kernel: PricedLater,
        function: Callable[..., Any],
        *arguments: object,
        label: str = "",
        role: str = "",
    ) -> Work[Any]:
        kernel = price_now(kernel)
        computed = Computed(label or kernel.kind, kernel)

        def run(*given: object) -> Any:
            running.append(computed)
            with Watch(computed):
                result = function(*given)
            found.append(running.pop())
            return result

        return issue(rank, kernel, run, *arguments, label=label, role=role)

    def count(module: ModuleType, name: str) -> Callable[..., Any]:
        compiled = getattr(module, name)

        def call(*arguments: object) -> Any:
            if running:  # else it is being compiled
                running[-1].operators.append(name)
                running[-1].is_compiled = True
            return compiled(*arguments)

        return call

    with patch.context() as here:
        here.setattr(Rank, "compute", compute)
        for module, name in COMPILED:
            here.setattr(module, name, count(module, name))
        yield found
