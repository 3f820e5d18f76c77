"""Prices kernels on an idle GPU: by the laws of their operators where there are some, else by a roofline."""

from __future__ import annotations

import dataclasses

from scenarios.config.gpu import Gpu
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import Recurrence
from sim.engine.roofline import KernelCost, cost, together, with_host, without_host
from sim.operators.chip import START_S
from sim.operators.laws import seconds
from sim.operators.tables.nearest import Correction
from sim.operators.tables.read import table_of
from sim.operators.tables.table import OperatorTable, correction

# Operators whose time is cached: each step with drawn ids has other lookups.
_MOST_KNOWN = 1 << 16
# Kernels with parts whose cost is cached; the cache keeps the parts alive, and some kernels have thousands.
_MOST_OF_PARTS = 1 << 12


class Prices:
    """A price list of kernels on one GPU, which prices each operator once."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        # Peak rates without efficiencies: an operator's law contains its efficiency.
        self._peaks = dataclasses.replace(gpu, efficiency={}, ramp_ns=0, ramps_ns={}) if gpu.has_laws else None
        self._known: dict[Operation, tuple[float, Correction]] = {}
        # By id() of the parts, which is valid as the entry keeps them alive.
        self._of_parts: dict[int, tuple[tuple[Kernel, ...], KernelCost]] = {}
        self._tables: list[OperatorTable] | None = None

    def cost(self, kernel: Kernel) -> KernelCost:
        """Return the cost of a kernel; parts of a kernel run one after the other.

        Raises:
            ProgramError: the kernel computes in a dtype for which the GPU has no rate, or its numbers are impossible.
        """
        if self._peaks is None:
            return cost(kernel, self._gpu)
        return with_host(self._without_host(kernel, self._peaks), kernel.host, self._gpu)

    @property
    def has_laws(self) -> bool:
        """True if operators that have a law are priced by it."""
        return self._peaks is not None

    def source_of_price(self, operation: Operation) -> str:
        """Return the source of an operator's price ("roofline", "measured", "table", ...), as in KernelRow."""
        if not self.has_laws:
            return "roofline"
        _, found = self._price(operation)
        if isinstance(operation, Recurrence):
            return "recurrence"
        return "measured" if found.is_measured else "table" if found.log_factor else "law"

    def seconds(self, operation: Operation) -> float:
        """Return the time of an operator by its law, corrected by the nearest measurements of the GPU's tables."""
        return self._price(operation)[0]

    def _price(self, operation: Operation) -> tuple[float, Correction]:
        found = self._known.get(operation)
        if found is None:
            # Emptied at once rather than one by one: a step's operators come back within the next step.
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            by = self._correction(operation)
            found = self._known[operation] = seconds(operation, self._gpu) * by.factor, by
        return found

    def _without_host(self, kernel: Kernel, peaks: Gpu) -> KernelCost:
        if not kernel.parts:
            return self._by_law(kernel, peaks) if kernel.operations else without_host(kernel, self._gpu)
        parts, found = self._of_parts.get(id(kernel.parts), (None, None))
        # An id may be used again after the cache was emptied, so the parts themselves are compared.
        if found is None or parts is not kernel.parts:
            if len(self._of_parts) >= _MOST_OF_PARTS:
                self._of_parts.clear()
            found = together([self._without_host(part, peaks) for part in kernel.parts], self._gpu)
            self._of_parts[id(kernel.parts)] = kernel.parts, found
        return found

    def _correction(self, operation: Operation) -> Correction:
        if self._tables is None:
            self._tables = [table_of(name, self._gpu) for name in self._gpu.kernel_tables]
        return correction(self._tables, operation)

    def _by_law(self, kernel: Kernel, peaks: Gpu) -> KernelCost:
        """Return a cost that lasts as long as the operators' laws say, in the proportions of a peak-rate roofline."""
        took_s = kernel.count * sum(map(self.seconds, kernel.operations))
        # A kernel's constant start-up time leaves arithmetic and memory to others.
        ramp_s = min(took_s, kernel.count * len(kernel.operations) * START_S)
        roofline = without_host(kernel, peaks)
        bound_s = max(roofline.arithmetic_s, roofline.memory_bytes / peaks.memory_bytes_per_s)
        busy_s = took_s - ramp_s
        factor = busy_s / bound_s if bound_s else 0.0
        return dataclasses.replace(
            roofline,
            ramp_ns=round(1e9 * ramp_s),
            arithmetic_s=roofline.arithmetic_s * factor if bound_s else busy_s,
            memory_bytes=roofline.memory_bytes * factor,
        )
