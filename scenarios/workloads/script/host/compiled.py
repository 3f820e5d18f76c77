"""Operators of code under torch.compile: fused as a compiler would, and launched when their results are needed."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from scenarios.modules.fusion import FusedRuns, fuse_operators
from scenarios.modules.operators import size_bytes, tensors_in, touched_tensors
from scenarios.modules.recorder import Operator
from scenarios.seam.host_work import NO_WORK, HostWork
from scenarios.seam.kernel import Kernel
from scenarios.workloads.recording.events.work import GradientReady, Label, Launched, LaunchKernel, OnStream
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory
from scenarios.workloads.script.host.compiled_memory import CompiledMemory, Kept

# A call: operator, positional arguments, keyword arguments, result.
Call = tuple[Any, tuple[Any, ...], dict[str, Any], Any]
# The host's work per kernel of compiled code (a Python launcher), and to enter the code (guards).
_OF_KERNEL, _OF_ENTRY = HostWork(calls=4), HostWork(calls=60)
# How many ranges of autograd nodes are kept, of the latest passes.
_MOST_RANGES = 1 << 12


class Compiled:
    """A buffer of the operators that compiled code has run since the last launch.

    A backward operator belongs to compiled code if compiled code made its autograd node. It reads, of tensors that a
    compiler recomputes, what these are recomputed from. Other launches in between, such as copies of gradients into
    buckets, are put behind the buffer. `launch(kernel, work)` launches a kernel after the host's work.
    """

    def __init__(self, launch: Callable[[Kernel, HostWork], None]) -> None:
        self._launch = launch
        self._depth = self._first = self._numbered = 0
        self._is_entered = False  # whether compiled code was entered since the last launch
        self._firsts: list[int] = []  # autograd's sequence numbers where compiled code begins, ascending,
        self._ends: list[int] = []  # and where it ends
        self._after: list[Callable[[], None]] = []
        self._memory: CompiledMemory | None = None
        # By storage: what is read instead of recomputed tensors, with its bytes; and the numbers of what is read.
        self._recomputed: dict[int, dict[int, int]] = {}
        self._kept: dict[int, int] = {}
        self._clear()

    def takes(self, memory: DeviceMemory) -> None:
        """Count the GPU memory of compiled code in `memory`."""
        self._memory = CompiledMemory(memory, self.flush)

    def defer_count(self) -> None:
        """Defer the memory count before an operator of compiled code runs."""
        if self._memory is not None and self.is_running:
            self._memory.begin()

    def enter(self) -> None:
        """Enter compiled code; all operators until `leave` belong to it."""
        self._depth += 1
        if self._depth == 1:
            # autograd numbers nodes as they are made: by number a backward node is known as compiled code's.
            self._first, self._is_entered = torch._C._autograd._get_sequence_nr(), True

    def leave(self, outputs: Any = None) -> None:
        """Leave compiled code, which returns `outputs`, and launch its operators."""
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
        """Whether compiled code runs now, forward or backward."""
        if not (self._depth or self._firsts):
            return False
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return self._depth > 0
        number = node._sequence_nr()
        place = bisect_right(self._firsts, number) - 1
        return place >= 0 and number < self._ends[place]

    def note(self, kernel: Kernel, call: Call, *, enters: bool = False) -> None:
        """Buffer an operator of compiled code; `enters`: count an entry into compiled code per launch."""
        self._is_entered |= enters
        func, args, kwargs, result = call
        read, written = touched_tensors(func, args, kwargs, result)
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
            self._memory.assign_numbers({key: self._numbers[key] for key in keys})

    def launch_after(self, launch: Callable[[], None]) -> bool:
        """Queue `launch` behind the buffered operators; return False, without a call, if there are none."""
        if self._operators:
            self._after.append(launch)
        return bool(self._operators)

    def flush(self) -> None:
        """Launch the buffered operators, fused, and then the launches queued behind them."""
        self._flush(None)

    def _flush(self, outputs: frozenset[int] | None) -> None:
        # Taken before anything is launched: a launch may buffer again, or flush.
        operators, after = self._operators, self._after
        if outputs is not None or self._memory is not None:
            self._keep(FusedRuns(operators), outputs)
        if not operators:
            return
        entry = _OF_ENTRY if self._is_entered else NO_WORK
        kernels = fuse_operators(operators)
        self._clear()
        self._after, self._is_entered = [], False
        for kernel in kernels:
            self._launch(kernel, HostWork(calls=_OF_KERNEL.calls + entry.calls))
            entry = NO_WORK
        for launch in after:
            launch()

    def _keep(self, runs: FusedRuns, outputs: frozenset[int] | None) -> None:
        """Find what the forward pass keeps for the backward pass, and count its memory."""
        kept: Kept | None = None
        if outputs is not None:
            given = {number for key, number in self._numbers.items() if key in outputs}
            kept = Kept(given, runs.recomputed(set(self._numbers.values()), given))
            self._freed.update(kept.recomputed)  # as if they did not exist
            roots = set[int]().union(*kept.recomputed.values())
            for key, number in self._numbers.items():
                if number in kept.recomputed:
                    self._recomputed[key] = dict(kept.recomputed[number])
                elif number in roots:
                    self._kept[key] = number
        if self._memory is not None:
            self._memory.end(runs, self._numbers, kept)

    def _clear(self) -> None:
        self._operators: list[Operator] = []
        self._uses: dict[int, list[Operator]] = {}
        self._freed: set[int] = set()
        self._numbers: dict[int, int] = {}

    def _sizes(self, tensors: Sequence[Tensor]) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            number = self._number(storage)
            for each, size in self._recomputed.get(storage._cdata, {number: size_bytes(tensor)}).items():
                sizes[each] = max(size, sizes.get(each, 0))
        return sizes

    def _number(self, storage: Any) -> int:
        key = storage._cdata
        if key not in self._numbers:
            number = self._kept.get(key)
            if number is None:
                number = self._numbered = self._numbered + 1
            self._numbers[key] = number
            weakref.finalize(storage, _forget, key, self._numbers, self._freed, (self._recomputed, self._kept))
        return self._numbers[key]


def _forget(key: int, numbers: dict[int, int], freed: set[int], kept: Iterable[dict[int, Any]]) -> None:
    """Mark a tensor's number as freed once no one holds its storage."""
    number = numbers.pop(key, None)
    if number is not None:
        freed.add(number)
    for each in kept:
        each.pop(key, None)


class AsCompiled:
    """A record of the GPU's work in the current step, as if the script's modules were compiled.

    Operators of modules, forward and backward, are fused. Operators of optimizers, of the script's own lines and of
    modules that TorchRec has sharded, whose Python code breaks compiled graphs, stay unchanged.
    """

    def __init__(self) -> None:
        self._compiled = Compiled(self._launch)
        self._given: list[Launched] = []
        self._is_backward = False
        self._as = 0, Label("")  # stream and label of the fused kernels

    def launch(self, given: OnStream | GradientReady, work: HostWork, call: Call | None) -> None:
        """Record an item for a stream, after the host's `work`. `call`: the module's operator, if it is one."""
        is_backward = torch._C._current_autograd_node() is not None
        if is_backward != self._is_backward:  # forward and backward are separate graphs: no fusion across them
            self._compiled.flush()
            self._is_backward = is_backward
        if call is not None and isinstance(given, LaunchKernel):
            self._as = given.stream, Label(given.label, given.role)
            if any(work.own_work):  # compiled code saves the rest of the host's work
                self._given.append(work.own_work)
            self._compiled.note(given.kernel, call, enters=True)
        elif not self._compiled.launch_after(lambda: self._add(given, work)):
            self._add(given, work)

    def note(self, work: HostWork) -> None:
        """Record the host's work that precedes a request, after launching the compiled code's kernels so far."""
        self._compiled.flush()
        self._add(None, work)

    def take(self) -> list[Launched]:
        """Return the GPU's work since the last call, as if compiled."""
        self._compiled.flush()
        given, self._given = self._given, []
        return given

    def _launch(self, kernel: Kernel, work: HostWork) -> None:
        stream, label = self._as
        self._add(LaunchKernel(stream, kernel, *label), work)

    def _add(self, given: OnStream | GradientReady | None, work: HostWork) -> None:
        if any(work):
            self._given.append(work)
        if given is not None:
            self._given.append(given)
