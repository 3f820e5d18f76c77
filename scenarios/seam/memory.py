"""Memory of a rank by part, its kind and phases of a step; the phase with the peak, and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from scenarios.seam.trace import ALWAYS, MemoryRow

PHASES = ("forward", "backward", "update")

# Kinds of parts: what a part's memory is for, set where its row is made.
TABLES, CACHED_ROWS, TABLE_STATE = "tables", "cached rows", "table optimizer"
SPARSE_BUFFERS, IDS, ROWS_AHEAD = "sparse buffers", "ids", "rows ahead"
ACTIVATIONS, BATCH, WEIGHTS = "activations", "batch", "weights"
GRADIENTS, OPTIMIZER, COMPRESSION = "gradients", "optimizer", "compression"
GATHERED, REDUCED = "gathered units", "reduced units"
PARAMETERS = "parameters"  # weights that belong to no module
CONTEXT, FRAGMENTATION, COMMUNICATION = "context", "fragmentation", "communication"

_CUT_TABLES = "sharding.types that cut tables (row_wise, column_wise), more ranks, or smaller tables"
# What would make a part smaller, by kind.
_REMEDIES = {
    **dict.fromkeys((TABLES, CACHED_ROWS, TABLE_STATE, ROWS_AHEAD), _CUT_TABLES),
    SPARSE_BUFFERS: "a smaller batch_size, or sharding.types that spread tables evenly",
    ACTIVATIONS: "a smaller batch_size, or activation checkpointing",
    **dict.fromkeys((BATCH, IDS), "a smaller batch_size"),
    WEIGHTS: "a smaller module, or parameters that are sharded over ranks",
    GRADIENTS: "a smaller dense part, or parameters that are sharded over ranks",
    OPTIMIZER: "an optimizer with less state",
    COMPRESSION: "a lower compression.matrix_approximation_rank, or use_error_feedback = false",
    GATHERED: "smaller units, whose parameters are gathered together",
    REDUCED: "smaller units, whose gradients are reduced together",
    FRAGMENTATION: "a smaller cluster.gpu.fragmentation, if yours is",
    COMMUNICATION: "fewer groups and streams, or a smaller NCCL_BUFFSIZE",
}


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part's bytes in some phases, as in MemoryRow."""

    name: str
    size_bytes: int
    phases: str = ALWAYS
    kind: str = ""

    def row(self, rank: int, capacity_bytes: int, rank_count: int) -> MemoryRow:
        """Return the part's row on a rank that represents `rank_count` ranks."""
        known = {"rank": rank, "capacity_bytes": capacity_bytes, "rank_count": rank_count}
        return MemoryRow(part=self.name, size_bytes=self.size_bytes, phases=self.phases, kind=self.kind, **known)


def is_there(phases: str, phase: str) -> bool:
    """Return whether a part with these `phases` (as in MemoryRow) is allocated in `phase`."""
    return phases == ALWAYS or phase in phases.split()


def peak(rows: Iterable[MemoryRow]) -> tuple[str, list[MemoryRow]]:
    """Return the phase in which one rank's parts take most memory (the first if equal), and these parts."""
    held = list(rows)
    there = {phase: [row for row in held if is_there(row.phases, phase)] for phase in PHASES}
    phase = max(PHASES, key=lambda one: sum(row.size_bytes for row in there[one]))
    return phase, there[phase]


def size_of(rows: Iterable[MemoryRow]) -> int:
    """Return the sum of the rows' bytes."""
    return sum(row.size_bytes for row in rows)


def peaks(rows: Iterable[MemoryRow]) -> dict[int, list[MemoryRow]]:
    """Return, by rank, the parts allocated at the rank's peak."""
    own: dict[int, list[MemoryRow]] = {}
    for row in rows:
        own.setdefault(row.rank, []).append(row)
    return {rank: peak(held)[1] for rank, held in own.items()}


def remedy(sizes: Iterable[tuple[str, str, float]]) -> str:
    """Return a phrase that tells how to make the largest part (name, kind, bytes) smaller, for the end of a sentence.

    Parts of equal name and kind are summed.
    """
    total = Counter[tuple[str, str]]()
    for part, kind, size in sizes:
        total[part, kind] += size  # type: ignore[assignment]
    _, largest = max(total, key=lambda each: total[each])
    found = _REMEDIES.get(largest)
    return f"{found}, or a profile with more memory" if found else "a profile with more memory"
