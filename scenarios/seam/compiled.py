"""Functions that numba compiles once and keeps on disk for later processes."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import njit


def compiler(source: str) -> Any:
    """The decorator of compiled functions of the module in the file `source`.

    What was kept of an older version of the module is forgotten: numba unpickles its index before it looks at its age,
    and fails where a class that it names has gone.
    """
    module = Path(source)
    with suppress(OSError):  # another process may be faster
        for index in (module.parent / "__pycache__").glob(f"{module.stem}.*.nbi"):
            if index.stat().st_mtime < module.stat().st_mtime:
                index.unlink()
    return njit(cache=True, nogil=True, error_model="numpy")
