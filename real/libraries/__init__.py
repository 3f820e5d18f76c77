"""The communication libraries of real ranks: a `LIBRARY` in `real.libraries.<name>` for each."""

from __future__ import annotations

import importlib

from real.libraries.library import DeviceLibrary
from scenarios.config.interconnect import LibraryName


def library_of(name: LibraryName) -> type[DeviceLibrary]:
    """The library that a scenario names; each rank makes its own of it."""
    found: type[DeviceLibrary] = importlib.import_module(f"real.libraries.{name}").LIBRARY
    return found
