"""What a script takes of the memory of a GPU that is not there: its tensors, cuBLAS's workspaces, and what torch's
allocator reserves for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from scenarios.config.units import format_bytes
from scenarios.workloads.script.gpu.memory.allocator import Allocator
from scenarios.workloads.script.gpu.memory.blocks import BLOCK_BYTES, Block

# What torch gives cuBLAS for each thread and stream that multiplies matrices, unless CUBLAS_WORKSPACE_CONFIG is set:
# 32 MiB on Hopper and data centers' Blackwell (also what the cuBLAS documentation recommends, cublasSetWorkspace),
# elsewhere 2 x 4 MiB and 8 x 16 KiB. An H200 takes 2 x 32 MiB beside the tensors of GPT-2, forward and back
# (torch.cuda.memory._snapshot, torch 2.11, 2026-11-27).
_LARGE_WORKSPACE_BYTES, _WORKSPACE_BYTES = 32 << 20, 8_519_680
_WITH_LARGE_WORKSPACE = frozenset({9, 10})
# Products with a bias are cuBLASLt's, to which torch gives another one (CUBLASLT_WORKSPACE_SIZE; the same snapshot).
_LT_WORKSPACE_BYTES = 1 << 20


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Return the bytes of one workspace of cuBLAS on GPUs of a compute capability."""
    return _LARGE_WORKSPACE_BYTES if capability[0] in _WITH_LARGE_WORKSPACE else _WORKSPACE_BYTES


class StorageJournal(Protocol):
    """Storages that appear and go while compiled code runs, of which only some are in memory."""

    def hold(self, key: Hashable, size_bytes: int, stream: int) -> None:
        """Note that a storage is there, or has another size, and the stream that made it."""
        ...

    def drop(self, key: Hashable) -> None:
        """Note that a storage is gone."""
        ...

    def holds(self, key: Hashable) -> bool | None:
        """Return whether a storage is there, None if the journal does not know it."""
        ...

    def end(self) -> None:
        """Have the memory count what has been noted, and take the journal from it."""
        ...


@dataclass(slots=True, eq=False)
class _Loan:
    """Bytes that are kept until all of their users are gone."""

    size_bytes: int
    users: set[Hashable]


class DeviceMemory:
    """Bytes of the storages that there are, by what stands for them; and the most that there were. Blocks are those of
    the current `stream()`; `say` is told of settings of torch's allocator that change nothing here.

    Attributes:
        allocator: what is reserved for the storages.
        journal: what is told of storages in the memory's place, while there is one.

    Raises:
        torch.OutOfMemoryError: there is no room for one, or none that is not in pieces.
    """

    def __init__(
        self,
        total_bytes: int,
        workspace_bytes: int = 0,
        stream: Callable[[], int] = lambda: 0,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.total_bytes, self._workspace_bytes, self._stream = total_bytes, workspace_bytes, stream
        self.now_bytes = self.peak_bytes = self.highest_bytes = 0  # the highest no script resets
        self.allocator, self._ooms = Allocator(total_bytes, say=say), 0
        self._uncounted: dict[Hashable, tuple[int, int]] = {}  # bytes and streams of what has no block until it counts
        self._given, self._taken = _Count(), _Count()  # allocations, since a script has reset them
        self._most_allocations, self._limit_bytes = 0, total_bytes
        self.journal: StorageJournal | None = None
        self._sizes: dict[Hashable, int] = {}
        self._workspaces: set[Hashable] = set()
        self._users: dict[Hashable, set[Hashable]] = {}
        self._loans: list[_Loan] = []

    def hold(self, key: Hashable, size_bytes: int, *, is_counted: bool = True, stream: int | None = None) -> None:
        """Count a storage that is there, or has another size than before; `is_counted`: so does the peak; `stream`: not
        the current one has made it.
        """
        stream = self._stream() if stream is None else stream
        if self.journal is not None:
            self.journal.hold(key, size_bytes, stream)
            return
        size_bytes = -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
        wanted_bytes = self.now_bytes - self._sizes.get(key, 0) + size_bytes
        if is_counted and wanted_bytes > self._limit_bytes:
            raise self._out_of_memory(size_bytes, self.now_bytes)
        self._taken.add(self._sizes.pop(key, 0))
        self._sizes[key], self.now_bytes = size_bytes, wanted_bytes
        self._free(key)
        self._uncounted[key] = size_bytes, stream
        if is_counted:
            try:
                self.count()
            except torch.OutOfMemoryError:
                self._sizes[key], self.now_bytes = 0, self.now_bytes - size_bytes  # it never was there
                self.drop(key)
                raise
        self._given.add(size_bytes)

    def _out_of_memory(self, size_bytes: int, held_bytes: int) -> torch.OutOfMemoryError:
        """Return the error of a storage for which there is no room beside those that are held."""
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
        """Let the peak be at least what is there now, of which all has blocks."""
        while self._uncounted:
            key = next(iter(self._uncounted))
            size_bytes, stream = self._uncounted.pop(key, (0, 0))
            if not self.allocator.allocate(key, size_bytes, stream):
                raise self._out_of_memory(size_bytes, self.allocator.reserved_bytes - self.allocator.free_bytes)
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        self.highest_bytes = max(self.highest_bytes, self.now_bytes)
        self._most_allocations = max(self._most_allocations, len(self._sizes))

    def drop(self, key: Hashable) -> None:
        """Count a storage no more, unless `keep` says that others need it."""
        if self.journal is not None:
            self.journal.drop(key)
            return
        size_bytes = self._sizes.pop(key, 0)
        self._taken.add(size_bytes)
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
        """Have a storage take memory, if it goes, until its users are gone, too."""
        self._users[key] = (self._users.get(key, set()) & self._sizes.keys()) | set(users)

    def holds(self, key: Hashable) -> bool:
        """Return whether a storage is there."""
        found = None if self.journal is None else self.journal.holds(key)
        return key in self._sizes if found is None else found

    def counted(self) -> DeviceMemory:
        """Return this memory when nothing of it is in a journal any more."""
        if self.journal is not None:
            self.journal.end()
        return self

    def hold_workspace(self, user: Hashable, *, has_bias: bool) -> None:
        """Count the workspace that cuBLAS has, and keeps, for the products of a thread and stream; with a bias, also
        cuBLASLt's.
        """
        for library, size_bytes in (("lt", _LT_WORKSPACE_BYTES), ("cublas", self._workspace_bytes))[not has_bias :]:
            if (library, user) not in self._workspaces:
                self.hold((library, user), size_bytes)
                self._workspaces.add((library, user))

    def reset_peak(self) -> None:
        """As `torch.cuda.reset_peak_memory_stats`."""
        self.peak_bytes = self.now_bytes
        self.allocator.reset(is_peak=True)
        self._most_allocations = len(self._sizes)

    def reset_accumulated(self) -> None:
        """As `torch.cuda.reset_accumulated_memory_stats`."""
        self._given, self._taken = _Count(), _Count()
        self.allocator.reset(is_peak=False)

    def empty_cache(self) -> None:
        """As `torch.cuda.empty_cache`."""
        self.allocator.release()

    def limit(self, fraction: float) -> None:
        """As `torch.cuda.set_per_process_memory_fraction`."""
        self._limit_bytes = self.allocator.limit_bytes = int(fraction * self.total_bytes)

    def free_and_total(self) -> tuple[int, int]:
        """As `torch.cuda.mem_get_info`, in bytes."""
        return self.total_bytes - self.allocator.reserved_bytes, self.total_bytes

    def statistics(self) -> dict[str, Any]:
        """Return what `torch.cuda.memory_stats_as_nested_dict` does, blocks that are held all as of the large pool."""
        given, taken, allocator = self._given, self._taken, self.allocator
        nothing = _statistic(0, 0, 0, 0)
        in_use = _statistic(self.now_bytes, self.peak_bytes, given.size_bytes, taken.size_bytes)
        counts = _statistic(len(self._sizes), self._most_allocations, given.number, taken.number)
        held = {
            **dict.fromkeys(("allocated_bytes", "active_bytes", "requested_bytes"), in_use),
            **dict.fromkeys(("allocation", "active"), counts),
        }
        pools = {pool: gauges.all() for pool, gauges in allocator.gauges.items()}
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
        """Return what `torch.cuda.memory_snapshot` does."""
        return [_segment(device, blocks) for blocks in self.allocator.ranges()]


@dataclass(slots=True)
class _Count:
    """A number of allocations, and their bytes together."""

    number: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Count one, unless it is empty."""
        self.number += size_bytes > 0
        self.size_bytes += size_bytes


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


def _statistic(current: int, peak: int, allocated: int, freed: int) -> dict[str, int]:
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
