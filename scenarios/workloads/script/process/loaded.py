"""Prepares the server process from which all ranks fork: imports shared modules, and scans them for names to replace.

Importing this module is its only use.
"""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress

from scenarios.collector import loading
from scenarios.workloads.script.forking import MODULES


def _load() -> None:
    """Import the listed modules; ignore failures, which recur in the script and are reported there."""
    for name in os.environ.pop(MODULES, "").split():
        with suppress(Exception):
            importlib.import_module(name)
    from scenarios.workloads.script.meeting.store import find_names  # noqa: PLC0415  (loads torch)

    find_names()


# Freeze: ranks share the memory of loaded modules, and their garbage collectors need not traverse it.
with loading():
    _load()
    gc.collect()
    gc.freeze()
