"""The communication libraries of real ranks: each `real.libraries.<name>` defines a `LIBRARY`."""

from __future__ import annotations

import importlib

from real.libraries.library import DeviceLibrary
from scenarios.config.interconnect import LibraryName


def library_of(name: LibraryName) -> type[DeviceLibrary]:
    """Return the class of the library that a scenario names; each rank makes its own instance."""
    found: type[DeviceLibrary] = importlib.import_module(f"real.libraries.{name}").LIBRARY
    return found
