"""Loads, in the process from which all ranks fork, the libraries that the script names: imported for this alone."""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress

from scenarios.workloads.script.forking import MODULES


def _load() -> None:
    """Import what the variable lists; what fails here fails again in the script, which then says why."""
    for name in os.environ.pop(MODULES, "").split():
        with suppress(Exception):
            importlib.import_module(name)
    # Ranks share the memory of what was loaded, and their garbage collector need not look through it.
    gc.collect()
    gc.freeze()


_load()
