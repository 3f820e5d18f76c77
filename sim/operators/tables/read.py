"""Reads the table of measured operators that a profile names; of the last ones each once."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from pyarrow import ArrowException

from scenarios.config.catalogue import kernel_table_file
from scenarios.config.gpu import Gpu
from scenarios.seam.errors import ScenarioError
from sim.operators.tables.table import Table, read

# Files with their time of change and the GPU of the law, and what was read: studies ask for a few again and again.
_KEPT: deque[tuple[tuple[Path, int, Gpu], Table]] = deque(maxlen=4)


def table_of(name: str, gpu: Gpu) -> Table:
    """Return the table of that name or path.

    Raises:
        ScenarioError: it cannot be read, in one sentence.
    """
    file = kernel_table_file(name)
    try:
        key = (file, file.stat().st_mtime_ns, gpu)
        found = next((table for kept, table in _KEPT if kept == key), None)
        if found is None:
            found = read(file, gpu)
            _KEPT.append((key, found))
    except (OSError, ArrowException, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ScenarioError(
            f"{file}: cluster.gpu.kernel_table: expected Parquet with measured operators as docs/kernels.md says:"
            f" {reason}"
        ) from None
    return found
