"""Which operators each computation of a program dispatches, and the bytes that they touch; judging is for the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from scenarios.seam.backend import Work
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.sparse import kernels_host
from scenarios.workloads.dlrm import embedding_cpu as embedding_host

# Beside views and what gives no tensor (a number read, a dtype found): new names, or memory that nobody has filled.
FREE = {
    *("alias", "detach", "lift_fresh", "_unsafe_view"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
}
# What numba compiled: it takes arrays, so no dispatcher sees it.
COMPILED = (
    *((kernels_host, name) for name in ("_assign", "_scatter", "_scatter_positions", "_number")),
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
        name, made = func.overloadpacket.__name__, tensors(result)
        if made and name not in FREE and not func.is_view:
            self._computed.operators.append(name)
            self._computed.touched_bytes += touched_bytes(name, tensors(args), made)
        return result


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def touched_bytes(name: str, given: list[Tensor], made: list[Tensor]) -> int:
    """Arguments read and results written, but of gathers and scatters only the rows that indices name."""
    match name:
        case "index" | "index_select":
            return 2 * size(*made) + size(*given[1:])
        case "_embedding_bag" | "_embedding_bag_forward_only":
            weight, ids, offsets = given[:3]
            return ids.numel() * weight.shape[1] * weight.element_size() + size(ids, offsets, made[0])
        case "index_add_" | "index_put_":
            indices, source = given[1:-1], given[-1]
            sums = name == "index_add_"
            return (2 + sums) * size(source) + size(*indices)
        case "new_zeros" | "zeros_like":
            return size(*made)
        case "copy_":
            return size(*given[1:], *made)
        case _:
            return size(*given, *made)


def size(*those: Tensor) -> int:
    return sum(each.numel() * each.element_size() for each in those)


@contextmanager
def watched(patch: pytest.MonkeyPatch) -> Iterator[list[Computed]]:
    """All computations of simulated ranks, as they end."""
    found: list[Computed] = []
    running: list[Computed] = []
    issue = Rank.compute

    def compute(
        rank: Rank, kernel: Kernel, function: Callable[..., Any], *arguments: object, label: str = ""
    ) -> Work[Any]:
        computed = Computed(label or kernel.kind, kernel)

        def run(*given: object) -> Any:
            running.append(computed)
            with Watch(computed):
                result = function(*given)
            found.append(running.pop())
            return result

        return issue(rank, kernel, run, *arguments, label=label)

    def counted(module: ModuleType, name: str) -> Callable[..., Any]:
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
            here.setattr(module, name, counted(module, name))
        yield found
