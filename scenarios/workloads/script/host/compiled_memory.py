"""Counts the GPU memory of compiled code: only results that a compiler writes take memory (`modules.fusion`).

Written results reuse the memory of operands that are read for the last time. A product that a selective checkpoint
keeps but that is only added to others is needed by no gradient: eager torch keeps it nevertheless, a compiler does not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

import torch

from scenarios.modules.fusion import FusedRuns
from scenarios.workloads.script.gpu.memory.memory import DeviceMemory, JournalStorage, StorageJournal


@dataclass(frozen=True, slots=True)
class Kept:
    """The tensors that a forward pass of compiled code returns, and those that the backward pass recomputes.

    `recomputed` has, by a tensor's number, the tensors from which it is recomputed and their bytes.
    """

    outputs: set[int]
    recomputed: Mapping[int, Mapping[int, int]]


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

    def end(self, runs: FusedRuns, numbers: Mapping[int, int], kept: Kept | None) -> None:
        """Count the deferred allocations and frees.

        Args:
            runs: the operators of the compiled code.
            numbers: numbers of the tensors that operators touch and that still exist, by storage.
            kept: what the forward pass keeps; None in a backward pass or before a forward pass has ended.

        Raises:
            torch.OutOfMemoryError: the written tensors do not fit.
        """
        if self._memory.journal is None:
            return
        journal, self._journal, self._memory.journal = self._journal, StorageJournal(self._flush), None
        keys: dict[int, Hashable] = {number: key for key, number in numbers.items()}
        users: dict[int, set[Hashable]] = {}
        for tensor, roots in kept.recomputed.items() if kept else ():
            for root in roots:
                users.setdefault(root, set()).add(keys[tensor])
        alive = set(keys)
        try:
            self._replay(journal, runs, (runs.within - alive).union(kept.recomputed if kept else ()), users)
        except torch.OutOfMemoryError:  # a script may catch it: freed storages must not stay counted
            for key in [key for key, last in journal.there.items() if last is None]:
                self._memory.drop(key)
            raise
        for source, using in users.items():
            if source in keys:
                self._memory.keep(keys[source], using)
        for number in runs.find_unneeded(alive - kept.outputs) if kept else ():
            self._memory.hold(keys[number], 0)

    def _replay(
        self, journal: StorageJournal, runs: FusedRuns, unwritten: set[int], users: Mapping[int, set[Hashable]]
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
