"""A script's use of a simulated GPU's memory: tensors, cuBLAS workspaces, and the allocator's reservations for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from scenarios.config.units import format_bytes
from scenarios.workloads.script.gpu.memory.allocator import Allocator
from scenarios.workloads.script.gpu.memory.blocks import BLOCK_BYTES, Block, Gauge

# cuBLAS's workspace for each thread and stream that multiplies matrices, unless CUBLAS_WORKSPACE_CONFIG is set: 32 MiB
# on Hopper and data centers' Blackwell (also recommended by the cuBLAS documentation, cublasSetWorkspace), elsewhere
# 2 x 4 MiB and 8 x 16 KiB. An H200 takes 2 x 32 MiB in addition to the tensors of GPT-2, forward and backward
# (torch.cuda.memory._snapshot, torch 2.11, 2026-11-27).
_LARGE_WORKSPACE_BYTES, _WORKSPACE_BYTES = 32 << 20, 8_519_680
_WITH_LARGE_WORKSPACE = frozenset({9, 10})
# Products with a bias use cuBLASLt, which has its own workspace (CUBLASLT_WORKSPACE_SIZE; the same snapshot).
_LT_WORKSPACE_BYTES = 1 << 20


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Return the bytes of one cuBLAS workspace on GPUs of a compute capability."""
    return _LARGE_WORKSPACE_BYTES if capability[0] in _WITH_LARGE_WORKSPACE else _WORKSPACE_BYTES


@dataclass(slots=True, eq=False)
class JournalStorage:
    """A storage that is allocated while compiled code runs; `number` is that of the tensor that its operator makes."""

    size_bytes: int
    stream: int
    number: int | None = None


@dataclass(slots=True)
class StorageJournal:
    """A journal of compiled code's allocations (key, storage) and frees (key, None), in order; only some take memory.

    `end` makes the memory count all records, and detaches the journal from it.
    """

    end: Callable[[], None]
    entries: list[tuple[Hashable, JournalStorage | None]] = field(default_factory=list)
    there: dict[Hashable, JournalStorage | None] = field(default_factory=dict)

    def note(self, key: Hashable, storage: JournalStorage | None) -> None:
        """Record that a storage was allocated or resized, or (None) freed."""
        self.there[key] = storage
        self.entries.append((key, storage))

    def sizes(self) -> dict[int, int]:
        """Return the sizes in bytes of the tensors that operators made, by their numbers."""
        found = (storage for _, storage in self.entries if storage is not None)
        return {each.number: each.size_bytes for each in found if each.number is not None}


@dataclass(slots=True, eq=False)
class _Loan:
    """A block of memory with several users (storages), freed with the last of them."""

    size_bytes: int
    users: set[Hashable]


class DeviceMemory:
    """The sizes of existing storages by key, and their peaks. New blocks belong to the current `stream()`.

    `say` is called about settings of torch's allocator that have no effect here.

    Attributes:
        allocator: the model of torch's allocator.
        journal: while set, receives allocations and frees in the memory's place.

    Raises:
        torch.OutOfMemoryError: a storage does not fit, or only into several free blocks.
    """

    def __init__(
        self,
        total_bytes: int,
        workspace_bytes: int = 0,
        stream: Callable[[], int] = lambda: 0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.total_bytes, self._workspace_bytes, self._stream = total_bytes, workspace_bytes, stream
        self.now_bytes = self.peak_bytes = self.highest_bytes = 0  # no script resets highest_bytes
        self.allocator, self._ooms = Allocator(total_bytes, say=say), 0
        self._uncounted: dict[Hashable, tuple[int, int]] = {}  # (bytes, stream) of storages without a block yet
        self._bytes, self._number = Gauge(), Gauge()  # allocated and freed since the script's last reset
        self._most_allocations, self._limit_bytes = 0, total_bytes
        self.journal: StorageJournal | None = None
        self._sizes: dict[Hashable, int] = {}
        self._workspaces: set[Hashable] = set()
        self._users: dict[Hashable, set[Hashable]] = {}
        self._loans: list[_Loan] = []

    def hold(self, key: Hashable, size_bytes: int, *, is_counted: bool = True, stream: int | None = None) -> None:
        """Count a new or resized storage.

        The size is rounded up to BLOCK_BYTES. Without `is_counted` the next `count` allocates the block and updates the
        peak. `stream` allocates, by default the current one.
        """
        stream = self._stream() if stream is None else stream
        if self.journal is not None:
            self.journal.note(key, JournalStorage(size_bytes, stream))
            return
        size_bytes = -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
        wanted_bytes = self.now_bytes - self._sizes.get(key, 0) + size_bytes
        if is_counted and wanted_bytes > self._limit_bytes:
            raise self._out_of_memory(size_bytes, self.now_bytes)
        self._count_change(-self._sizes.pop(key, 0))
        self._sizes[key], self.now_bytes = size_bytes, wanted_bytes
        self._free(key)
        self._uncounted[key] = size_bytes, stream
        if is_counted:
            try:
                self.count()
            except torch.OutOfMemoryError:
                self._sizes[key], self.now_bytes = 0, self.now_bytes - size_bytes  # undo: the storage was not allocated
                self.drop(key)
                raise
        self._count_change(size_bytes)

    def _count_change(self, size_bytes: int) -> None:
        """Count an allocation or, with negative bytes, a free; nothing if it is empty."""
        self._bytes.add(size_bytes)
        self._number.add((size_bytes > 0) - (size_bytes < 0))

    def _out_of_memory(self, size_bytes: int, held_bytes: int) -> torch.OutOfMemoryError:
        """Return the error for a storage that does not fit next to `held_bytes`."""
        self._ooms += 1
        sentence = (
            f"CUDA out of memory: expected room for {format_bytes(size_bytes)}; the script's tensors take"
            f" {format_bytes(held_bytes)} of {format_bytes(self._limit_bytes)}"
        )
        if held_bytes + size_bytes <= self._limit_bytes:
            free = format_bytes(self.allocator.free_bytes)
            sentence += f", and {free} more is reserved but free, in blocks that are too small or another stream's"
            if not self.allocator.is_expandable:
                sentence += "; PYTORCH_ALLOC_CONF=expandable_segments:True avoids most such blocks"
        return torch.OutOfMemoryError(sentence)

    def count(self) -> None:
        """Allocate pending blocks, and update the peaks."""
        while self._uncounted:
            key = next(iter(self._uncounted))
            size_bytes, stream = self._uncounted.pop(key, (0, 0))
            if not self.allocator.allocate(key, size_bytes, stream):
                raise self._out_of_memory(size_bytes, self.allocator.reserved_bytes - self.allocator.free_bytes)
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        self.highest_bytes = max(self.highest_bytes, self.now_bytes)
        self._most_allocations = max(self._most_allocations, len(self._sizes))

    def drop(self, key: Hashable) -> None:
        """Free a storage, unless `keep` has named users that still exist."""
        if self.journal is not None:
            self.journal.note(key, None)
            return
        size_bytes = self._sizes.pop(key, 0)
        self._count_change(-size_bytes)
        users = self._users.pop(key, set()) & self._sizes.keys()
        if users:
            self._loans.append(loan := _Loan(size_bytes, users))
            self.allocator.move(key, loan)
            if key in self._uncounted:
                self._uncounted[loan] = self._uncounted.pop(key)
        else:
            self.now_bytes -= size_bytes
            self._free(key)
        for loan in [each for each in self._loans if key in each.users]:
            loan.users.discard(key)
            if not loan.users:
                self._loans.remove(loan)
                self.now_bytes -= loan.size_bytes
                self._free(loan)

    def _free(self, key: Hashable) -> None:
        if self._uncounted.pop(key, None) is None:
            self.allocator.free(key)

    def keep(self, key: Hashable, users: Iterable[Hashable]) -> None:
        """Keep a storage's memory, once it is freed, until its users are freed, too."""
        self._users[key] = (self._users.get(key, set()) & self._sizes.keys()) | set(users)

    def holds(self, key: Hashable) -> bool:
        """Return whether a storage exists."""
        if self.journal is not None and key in self.journal.there:
            return self.journal.there[key] is not None
        return key in self._sizes

    def count_records(self) -> DeviceMemory:
        """Return this memory, after counting all records of a journal."""
        if self.journal is not None:
            self.journal.end()
        return self

    def hold_workspace(self, user: Hashable, *, has_bias: bool) -> None:
        """Count the permanent cuBLAS workspace for a thread and stream; with a bias, also cuBLASLt's."""
        for library, size_bytes in (("lt", _LT_WORKSPACE_BYTES), ("cublas", self._workspace_bytes))[not has_bias :]:
            if (library, user) not in self._workspaces:
                self.hold((library, user), size_bytes)
                self._workspaces.add((library, user))

    def reset_peak(self) -> None:
        """Reset the peaks, as `torch.cuda.reset_peak_memory_stats` does."""
        self.peak_bytes = self.now_bytes
        self.allocator.reset(is_peak=True)
        self._most_allocations = len(self._sizes)

    def reset_accumulated(self) -> None:
        """Reset the totals, as `torch.cuda.reset_accumulated_memory_stats` does."""
        self._bytes, self._number = Gauge(), Gauge()
        self.allocator.reset(is_peak=False)

    def empty_cache(self) -> None:
        """Release unused memory, as `torch.cuda.empty_cache` does."""
        self.allocator.release()

    def limit(self, fraction: float) -> None:
        """Limit the memory, as `torch.cuda.set_per_process_memory_fraction` does."""
        self._limit_bytes = self.allocator.limit_bytes = int(fraction * self.total_bytes)

    def free_and_total(self) -> tuple[int, int]:
        """Return free and total bytes, as `torch.cuda.mem_get_info` does."""
        return self.total_bytes - self.allocator.reserved_bytes, self.total_bytes

    def statistics(self) -> dict[str, Any]:
        """Return the dict of `torch.cuda.memory_stats_as_nested_dict`; held blocks all count as of the large pool."""
        nothing, allocator = asdict(Gauge()), self.allocator
        in_use = asdict(replace(self._bytes, current=self.now_bytes, peak=self.peak_bytes))
        counts = asdict(replace(self._number, current=len(self._sizes), peak=self._most_allocations))
        held = {
            **dict.fromkeys(("allocated_bytes", "active_bytes", "requested_bytes"), in_use),
            **dict.fromkeys(("allocation", "active"), counts),
        }
        pools = allocator.gauges
        return {
            **{name: {"all": found, "large_pool": found, "small_pool": nothing} for name, found in held.items()},
            **{name: {pool: asdict(of[name]) for pool, of in pools.items()} for name in pools["all"]},
            "oversize_allocations": nothing,
            "oversize_segments": nothing,
            "num_alloc_retries": allocator.retries,
            "num_device_alloc": allocator.allocations,
            "num_device_free": allocator.releases,
            "num_ooms": self._ooms,
            **dict.fromkeys(("num_sync_all_streams", "max_split_size"), 0),
        }

    def segments(self, device: int) -> list[dict[str, Any]]:
        """Return the list of `torch.cuda.memory_snapshot`."""
        return [_segment(device, blocks) for blocks in self.allocator.ranges()]


def _segment(device: int, blocks: list[Block]) -> dict[str, Any]:
    pool, held = blocks[0].pool, sum(each.size_bytes for each in blocks if not each.is_free)
    return {
        **{"device": device, "stream": pool.stream, "address": blocks[0].start, "frames": []},
        **{"segment_type": "small" if pool.is_small else "large", "segment_pool_id": (0, 0)},
        "is_expandable": blocks[0].is_expandable,
        "total_size": sum(each.size_bytes for each in blocks),
        **dict.fromkeys(("allocated_size", "active_size", "requested_size"), held),
        "blocks": [
            {
                "state": "inactive" if each.is_free else "active_allocated",
                **{"size": each.size_bytes, "requested_size": each.size_bytes},
                **{"address": each.start, "frames": []},
            }
            for each in blocks
        ],
    }
