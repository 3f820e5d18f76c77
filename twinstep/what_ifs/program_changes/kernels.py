"""Rewrite kernels operator by operator, and price the computations of a step, for changes of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from scenarios.config.gpu import Gpu
from scenarios.config.scenario import Scenario
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import Product
from scenarios.workloads.registry import find
from sim.engine.prices import Prices
from sim.rank.observed import ObservedStep

# Operators that libraries compute: neither a compiler nor a graph changes their kernels.
OF_LIBRARIES = (Product, Attention, Convolution)
_BACKWARD = ".backward"


class Step:
    """A simulated step of the unchanged program, with prices of its operators on the GPU and of their launches."""

    def __init__(self, observed: ObservedStep, before: ObservedStep | None, gpu: Gpu) -> None:
        """Price the step; `before` is the step before it, if there is one."""
        self.observed, self.before, self.gpu = observed, before, gpu
        self.prices = Prices(gpu)
        self.operations = list(observed.operations())

    def ns(self, operations: Iterable[tuple[Operation, int]]) -> float:
        """Return the ns of operators on an idle GPU, each the given number of times."""
        return 1e9 * sum(times * self.prices.seconds(operation) for operation, times in operations)

    def launching_ns(self, kernel: Kernel) -> int:
        """Return the host's ns to launch a kernel of an eager program."""
        return self.prices.cost(kernel).launch_ns

    @property
    def host_ns(self) -> int:
        """The host's time to launch all kernels of the step, in ns."""
        return sum(self.launching_ns(one.kernel) for one in self.observed.computed)


def tables_of(scenario: Scenario) -> set[str]:
    """Return the names of the TOML tables that a scenario's program reads."""
    return {table.key for table in find(scenario.program, scenario.program_folder).tables}


def with_operations(kernel: Kernel, change: Callable[[Operation], Operation]) -> Kernel:
    """Return a kernel with other operators; the same object where none changes."""
    if kernel.parts:
        parts = tuple(with_operations(part, change) for part in kernel.parts)
        return kernel if _are_same(parts, kernel.parts) else replace(kernel, parts=parts)
    operations = tuple(map(change, kernel.operations))
    return kernel if _are_same(operations, kernel.operations) else replace(kernel, operations=operations)


def places(labels: Iterable[str]) -> str:
    """Return the modules of these labels in words: the first one, and the number of others."""
    found = list(dict.fromkeys(label.removesuffix(_BACKWARD) for label in labels))
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def _are_same(some: tuple[object, ...], others: tuple[object, ...]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))
