"""Compiles functions with numba once, cached on disk for later processes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiler(source: str) -> Callable[[F], F]:
    """Return the decorator for compiled functions of the module in the file `source`.

    Removes caches of an older version of the module: numba unpickles its index before it checks the age, which fails if
    a class in the index no longer exists.
    """
    module = Path(source)
    with suppress(OSError):  # another process may have removed it first
        for index in (module.parent / "__pycache__").glob(f"{module.stem}.*.nbi"):
            if index.stat().st_mtime < module.stat().st_mtime:
                index.unlink()
    made: Any = njit(cache=True, nogil=True, error_model="numpy")
    decorate: Callable[[F], F] = made
    return decorate
