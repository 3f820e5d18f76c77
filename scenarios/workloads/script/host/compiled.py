"""Operators of code that torch.compile was given: fused as a compiler would, whenever what they make is needed."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from scenarios.modules.fusion import fused
from scenarios.modules.operators import size_bytes, tensors_in, touched
from scenarios.modules.recorder import Operator
from scenarios.seam.host_work import NO_WORK, HostWork
from scenarios.seam.kernel import Kernel
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory
from scenarios.workloads.script.host.compiled_memory import CompiledMemory

# A call's arguments and result: the operator, what it was given by place and by name, what it gave.
Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any]
# What the host does for a kernel of compiled code, and to enter it: a launcher in Python, and guards.
_OF_KERNEL, _OF_ENTRY = HostWork(calls=4), HostWork(calls=60)
# Ranges of autograd's nodes that are kept, those of the last passes.
_MOST_RANGES = 1 << 12


class Compiled:
    """The operators of compiled code that ran since it was launched last.

    A backward pass belongs to it where its nodes were made by compiled code. What others launch in between, such as
    gradients' copies into buckets, comes after it. `launch(kernel, work)` gives the GPU a kernel, and says what the
    host does before it.
    """

    def __init__(self, launch: Callable[[Kernel, HostWork], None]) -> None:
        self._launch = launch
        self._depth = self._first = self._numbered = 0
        self._is_entered = False  # since it was launched last
        self._firsts: list[int] = []  # autograd's numbers where compiled code begins, rising,
        self._ends: list[int] = []  # and where it ends
        self._after: list[Callable[[], None]] = []
        self._memory: CompiledMemory | None = None
        self._clear()

    def takes(self, memory: DeviceMemory) -> None:
        """Have what compiled code takes of a GPU's memory counted there."""
        self._memory = CompiledMemory(memory, self.flush)

    def dispatched(self) -> None:
        """Take notice of an operator ahead of what it does."""
        if self._memory is not None and self.is_running:
            self._memory.begin()

    def enter(self) -> None:
        """Begin compiled code; what is called within it belongs to it."""
        self._depth += 1
        if self._depth == 1:
            self._first, self._is_entered = torch._C._autograd._get_sequence_nr(), True

    def leave(self, outputs: Any = None) -> None:
        """End it; `outputs` is what it gives."""
        self._depth -= 1
        if self._depth:
            return
        self._firsts.append(self._first)
        self._ends.append(torch._C._autograd._get_sequence_nr())
        if len(self._firsts) > _MOST_RANGES:
            del self._firsts[: _MOST_RANGES // 2], self._ends[: _MOST_RANGES // 2]
        self._flush(frozenset(each.untyped_storage()._cdata for each in tensors_in(outputs)))

    @property
    def is_running(self) -> bool:
        """Whether compiled code runs now, forward or back."""
        if not (self._depth or self._firsts):
            return False
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return self._depth > 0
        number = node._sequence_nr()
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number < self._ends[place]

    def note(self, kernel: Kernel, call: Call, *, enters: bool = False) -> None:
        """Keep an operator of compiled code; `enters`: it is entered anew wherever it was launched."""
        self._is_entered |= enters
        func, args, kwargs, result = call
        read, written = touched(func, args, kwargs, result)
        operator = Operator(
            name=func.overloadpacket.__name__,
            module="",
            kernel=kernel,
            host=NO_WORK,
            number=len(self._operators),
            reads=self._sizes(read),
            writes=self._sizes(written),
            uses=self._uses,
            freed=self._freed,
        )
        for tensor in operator.reads:
            self._uses.setdefault(tensor, []).append(operator)
        self._operators.append(operator)
        if self._memory is not None:
            keys = (each.untyped_storage()._cdata for each in written)
            self._memory.made({key: self._numbers[key] for key in keys})

    def launch_after(self, launch: Callable[[], None]) -> bool:
        """Call `launch` behind what is kept; return whether there is anything."""
        if self._operators:
            self._after.append(launch)
        return bool(self._operators)

    def flush(self) -> None:
        """Launch what is kept, fused, and what comes after it."""
        self._flush(None)

    def _flush(self, outputs: frozenset[int] | None) -> None:
        operators, after = self._operators, self._after
        if self._memory is not None:
            self._memory.end(operators, self._numbers, outputs)
        if not operators:
            return
        entry = _OF_ENTRY if self._is_entered else NO_WORK
        kernels = fused(operators)
        self._clear()
        self._after, self._is_entered = [], False
        for kernel in kernels:
            self._launch(kernel, HostWork(calls=_OF_KERNEL.calls + entry.calls))
            entry = NO_WORK
        for launch in after:
            launch()

    def _clear(self) -> None:
        self._operators: list[Operator] = []
        self._uses: dict[int, list[Operator]] = {}
        self._freed: set[int] = set()
        self._numbers: dict[int, int] = {}

    def _sizes(self, tensors: Sequence[Tensor]) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for tensor in tensors:
            number = self._number(tensor.untyped_storage())
            sizes[number] = max(size_bytes(tensor), sizes.get(number, 0))
        return sizes

    def _number(self, storage: Any) -> int:
        key = storage._cdata
        if key not in self._numbers:
            self._numbered += 1
            self._numbers[key] = self._numbered
            weakref.finalize(storage, _gone, self._numbers, self._freed, key)
        return self._numbers[key]


def _gone(numbers: dict[int, int], freed: set[int], key: int) -> None:
    """Note that nobody holds a tensor any more, by the number that it had."""
    number = numbers.pop(key, None)
    if number is not None:
        freed.add(number)
