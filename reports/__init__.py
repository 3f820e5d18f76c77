"""Read runs as frames, and write tables, pages and comparisons of runs.

`import reports` is light: pandas is loaded when a name of this package is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.errors import ReportError as ReportError
    from reports.run import Run as Run
    from reports.store.run_folder import fresh_folder as fresh_folder
    from reports.store.run_folder import load as load
    from reports.writer import write as write

_HOMES = {
    "ReportError": "reports.errors",
    "Run": "reports.run",
    "fresh_folder": "reports.store.run_folder",
    "load": "reports.store.run_folder",
    "write": "reports.writer",
}

__all__ = ["ReportError", "Run", "fresh_folder", "load", "write"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'reports' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
