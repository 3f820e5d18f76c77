"""Reads the table of measured operators that a profile names; of the last ones each once."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from scenarios.config.catalogue import kernel_table_file
from scenarios.config.gpu import Gpu
from sim.operators.tables.about import About, about
from sim.operators.tables.table import Table, read, reading
from sim.operators.tables.wheel import Measured

# Files with their time of change and the GPU of the law, and what was read: studies ask for a few again and again.
_KEPT: deque[tuple[tuple[Path, int, Gpu], Table]] = deque(maxlen=4)


def table_of(name: str, gpu: Gpu) -> Table:
    """Return the table of that name or path.

    Raises:
        ScenarioError: it cannot be read, in one sentence.
    """
    file = kernel_table_file(name)
    with reading(file):
        key = (file, file.stat().st_mtime_ns, gpu)
        found = next((table for kept, table in _KEPT if kept == key), None)
        if found is None:
            found = Table(surfaces=Measured(file, gpu)) if file.is_dir() else read(file, gpu)
            _KEPT.append((key, found))
    return found


def about_table(name: str, gpu: Gpu) -> About:
    """Return how many operators the table of that name or path holds, whose they are and how good it is.

    Raises:
        ScenarioError: it cannot be read, in one sentence.
    """
    file = kernel_table_file(name)
    with reading(file):
        return about(file, lambda: table_of(name, gpu) if gpu.has_laws else Table(surfaces={}))
