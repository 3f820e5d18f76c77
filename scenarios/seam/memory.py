"""Memory of a rank by phase of a step, the phase with the peak, and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from scenarios.seam.trace import ALWAYS, MemoryRow

PHASES = ("forward", "backward", "update")

# What would make a part smaller, by the beginning of its name; the first match counts.
_REMEDIES = {
    "embedding": "sharding.types that cut tables (row_wise, column_wise), more ranks, or smaller tables",
    "sparse buffers": "a smaller batch_size, or sharding.types that spread tables evenly",
    "activations": "a smaller batch_size, or activation checkpointing",
    "temporaries": "a smaller batch_size",
    "operands": "a smaller batch_size",
    "inputs": "a smaller batch_size",
    "dense optimizer": "an optimizer with less state",
    "optimizer": "an optimizer with less state",
    "gradient": "a smaller dense part, or parameters that are sharded over ranks",
    "dense": "a smaller dense part, or parameters that are sharded over ranks",
    "gathered units": "smaller units, whose parameters are gathered together",
    "reduced units": "smaller units, whose gradients are reduced together",
    "weights": "a smaller module, or parameters that are sharded over ranks",
    "compression": "a lower compression.matrix_approximation_rank, or use_error_feedback = false",
    "fragmentation": "a smaller cluster.gpu.fragmentation, if yours is",
    "communication": "fewer groups and streams, or a smaller NCCL_BUFFSIZE",
}


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


def remedy(sizes: Sequence[tuple[str, float]]) -> str:
    """Return a phrase that tells how to make the largest part of the memory smaller, for the end of a sentence.

    Entries with equal names are summed.
    """
    total = Counter[str]()
    for part, size in sizes:
        total[part] += size  # type: ignore[assignment]
    largest = max(total, key=lambda part: total[part])
    found = next((said for start, said in _REMEDIES.items() if largest.startswith(start)), "")
    return f"{found}, or a profile with more memory" if found else "a profile with more memory"
