"""Functions that numba compiles once and keeps on disk for later processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiler(source: str) -> Callable[[F], F]:
    """The decorator of compiled functions of the module in the file `source`.

    What was kept of an older version of the module is forgotten: numba unpickles its index before it looks at its age,
    and fails where a class that it names has gone.
    """
    module = Path(source)
    with suppress(OSError):  # another process may be faster
        for index in (module.parent / "__pycache__").glob(f"{module.stem}.*.nbi"):
            if index.stat().st_mtime < module.stat().st_mtime:
                index.unlink()
    made: Any = njit(cache=True, nogil=True, error_model="numpy")
    decorate: Callable[[F], F] = made
    return decorate
