"""Does, in the process from which all ranks fork, what they share: loads what a rank runs and libraries that the script
names, and looks through torch's modules. Imported for this alone.
"""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress

from scenarios.collector import loading
from scenarios.workloads.script.forking import MODULES


def _load() -> None:
    """Import what the variable lists; what fails here fails again in the script, which then says why."""
    for name in os.environ.pop(MODULES, "").split():
        with suppress(Exception):
            importlib.import_module(name)
    from scenarios.workloads.script.meeting.store import find_names  # noqa: PLC0415  (loads torch)

    find_names()


# Ranks share the memory of what was loaded, and their garbage collector need not look through it.
with loading():
    _load()
    gc.collect()
    gc.freeze()
