"""Does, in the process from which all ranks fork, what they share: loads libraries that the script names, and looks
through torch's modules. Imported for this alone.
"""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress

from scenarios.workloads.script.forking import MODULES
from scenarios.workloads.script.meeting.store import find_names


def _load() -> None:
    """Import what the variable lists; what fails here fails again in the script, which then says why."""
    for name in os.environ.pop(MODULES, "").split():
        with suppress(Exception):
            importlib.import_module(name)
    find_names()
    # Ranks share the memory of what was loaded, and their garbage collector need not look through it.
    gc.collect()
    gc.freeze()


_load()
