"""Which releases a run was made with; nothing is imported to find out."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("twinstep", "torch", "simpy", "numpy", "pandas", "pyarrow")


def versions() -> dict[str, str]:
    """Python's release and each package's, "not installed" where there is none."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
