"""Decides which intermediate tensors of compiled code take memory of a GPU.

A compiler writes results of elementwise operators and reductions only where a product (or attention, a convolution, any
other operator of a library) or code after the next product reads them; other results stay within a kernel. Autograd
keeps some of those for the backward pass; a compiler recomputes them there, from results of products and from inputs,
if keeping those takes less memory. AOTAutograd's min-cut partitioner decides this; here it is decided for the operators
between two products at a time. `cross_entropy` under autocast then keeps the logits in bfloat16, instead of their
logarithms in bfloat16 and in float32. Written results reuse the memory of operands that are read for the last time.
A product that a selective checkpoint keeps but that is only added to others is needed by no gradient: eager torch keeps
it nevertheless, a compiler does not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from scenarios.modules.fusion import COPIES, POINTWISE
from scenarios.modules.recorder import Operator
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory, JournalStorage, StorageJournal

_FUSED = POINTWISE | {"reduction"}
# Operators whose gradients need neither operands nor results.
_PASSES_ON = COPIES | {"add", "add_", "sub", "sub_", "neg", "cat"}
# Operators that draw random numbers: their results are kept, not recomputed.
_RANDOM = ("dropout", "bernoulli", "rand", "normal_", "uniform_")


class CompiledMemory:
    """A filter that makes `memory` count what compiled code writes, instead of all results of its operators.

    `flush()` ends the deferral, when a script queries how much memory is allocated.
    """

    def __init__(self, memory: DeviceMemory, flush: Callable[[], None]) -> None:
        self._memory, self._flush, self._journal = memory, flush, StorageJournal(flush)

    def begin(self) -> None:
        """Defer the memory's counting until `end`."""
        self._memory.journal = self._journal

    def assign_numbers(self, numbers: Mapping[Hashable, int]) -> None:
        """Assign numbers of tensors to the storages, given by key, that an operator of compiled code writes."""
        for key, number in numbers.items():
            storage = self._journal.there.get(key)
            if storage is not None and storage.number is None:
                storage.number = number

    def end(self, operators: Sequence[Operator], numbers: Mapping[int, int], outputs: frozenset[int] | None) -> None:
        """Count the deferred allocations and frees.

        Args:
            operators: the operators of the compiled code.
            numbers: numbers of the tensors that operators touch and that still exist, by storage.
            outputs: storages that a forward pass returns; None in a backward pass or before a forward pass has ended.

        Raises:
            torch.OutOfMemoryError: the written tensors do not fit.
        """
        if self._memory.journal is None:
            return
        journal, self._journal, self._memory.journal = self._journal, StorageJournal(self._flush), None
        runs, sizes = _Runs(operators), journal.sizes()
        alive = {each.number for each in journal.there.values() if each is not None and each.number is not None}
        sources: dict[int, set[int]] = {}
        unneeded: list[int] = []
        if outputs is not None:
            given = {number for key, number in numbers.items() if key in outputs}
            sources, unneeded = runs.sources(sizes, alive, given), runs.find_unneeded(alive - given)
        keys: dict[int, Hashable] = {number: key for key, number in numbers.items()}
        users = {source: {keys[each] for each in made} for source, made in sources.items()}
        try:
            self._replay(journal, runs, (runs.within - alive).union(*sources.values()), users)
        except torch.OutOfMemoryError:  # a script may catch it: freed storages must not stay counted
            for key in [key for key, last in journal.there.items() if last is None]:
                self._memory.drop(key)
            raise
        for source, using in users.items():
            if source in keys:
                self._memory.keep(keys[source], using)
        for number in unneeded:
            if number in keys:
                self._memory.hold(keys[number], 0)

    def _replay(
        self, journal: StorageJournal, runs: _Runs, unwritten: set[int], users: Mapping[int, set[Hashable]]
    ) -> None:
        """Count written storages in the memory, and the peak after each run: results may overwrite last-read operands.

        `users` are, by a tensor's number, the storages of tensors that are recomputed from it.
        """
        there: dict[Hashable, JournalStorage] = {}
        run: int | None = None
        for key, storage in journal.entries:
            if storage is None:
                gone = there.pop(key, None)
                if gone is not None and gone.number is not None and gone.number in users:
                    self._memory.keep(key, users[gone.number])
                self._memory.drop(key)
                continue
            there[key] = storage
            own = runs.run_of(storage.number)
            if own != run:
                self._memory.count()
            run = own
            size_bytes = 0 if storage.number in unwritten else storage.size_bytes
            self._memory.hold(key, size_bytes, is_counted=own is None, stream=storage.stream)
        self._memory.count()


@dataclass(frozen=True, slots=True)
class _Maker:
    """The operator that makes a tensor, with the number of its run; None: a library's operator."""

    operator: Operator
    run: int | None


class _Runs:
    """Operators cut into runs that a compiler fuses, each between two operators of libraries.

    Attributes:
        within: numbers of the tensors that one run makes and no other run reads.
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._makers: dict[int, _Maker] = {}
        self._readers: dict[int, list[Operator]] = {}
        written, last = set[int](), 0
        for operator in operators:
            is_fused = operator.kernel.kind in _FUSED or operator.name in COPIES
            last += not is_fused
            run = last if is_fused else None
            written.update(tensor for tensor in operator.reads if run is None or self.run_of(tensor) != run)
            for tensor in operator.reads:
                self._readers.setdefault(tensor, []).append(operator)
            for tensor in operator.writes:
                if run is None or tensor in self._makers or tensor in operator.reads:
                    # A library's result, or one changed in place: neither can stay within a fused kernel.
                    written.add(tensor)
                self._makers.setdefault(tensor, _Maker(operator, run))
        self.within = self._makers.keys() - written

    def run_of(self, tensor: int | None) -> int | None:
        """Return the run that makes a tensor; None if a library makes it, or no operator here."""
        maker = None if tensor is None else self._makers.get(tensor)
        return None if maker is None else maker.run

    def sources(self, sizes: Mapping[int, int], alive: set[int], outputs: set[int]) -> dict[int, set[int]]:
        """Return the tensors from which others are recomputed in the backward pass, each with the recomputed ones.

        `sizes` are bytes of tensors by number; `alive` ones exist at the end, and the forward pass returns `outputs`.
        """
        found: dict[int, set[int]] = {}
        kept: dict[int | None, list[int]] = {}
        for tensor in sorted((alive & self.within) - outputs):
            if not self._is_random(tensor):
                kept.setdefault(self.run_of(tensor), []).append(tensor)
        for tensors in kept.values():
            roots: dict[int, set[int]] = {}
            for tensor in tensors:
                for root in self._roots(tensor, alive):
                    roots.setdefault(root, set()).add(tensor)
            if sum(sizes.get(each, 0) for each in roots if each not in alive) < sum(sizes[each] for each in tensors):
                for root, made in roots.items():
                    found.setdefault(root, set()).update(made)
        return found

    def find_unneeded(self, tensors: set[int]) -> list[int]:
        """Return the tensors that are results of matrix products and that no gradient needs."""
        made = (each for each in sorted(tensors) if each in self._makers)
        return [each for each in made if self._makers[each].operator.kernel.kind == "gemm" and self._is_passed_on(each)]

    def _is_passed_on(self, tensor: int) -> bool:
        """Return whether a tensor is read, and only by operators whose gradients need neither operands nor results."""
        left, seen = [tensor], {tensor}
        while left:
            for reader in self._readers.get(left.pop(), ()):
                if reader.name not in _PASSES_ON:
                    return False
                made = reader.writes.keys() - seen
                seen |= made
                left += made
        return tensor in self._readers

    def _roots(self, tensor: int, alive: set[int]) -> Iterator[int]:
        """Yield the tensors from which a tensor is recomputed: libraries' results, inputs, existing written tensors."""
        run, left, seen = self.run_of(tensor), [tensor], {tensor}
        while left:
            for read in self._makers[left.pop()].operator.reads.keys() - seen:
                seen.add(read)
                is_made_here = self.run_of(read) == run and not self._is_random(read)
                if is_made_here and (read in self.within or read not in alive):
                    left.append(read)
                else:
                    yield read

    def _is_random(self, tensor: int) -> bool:
        return any(each in self._makers[tensor].operator.name for each in _RANDOM)
