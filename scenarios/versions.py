"""Which releases a run was made with; nothing is imported to find out."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("twinstep", "torch", "simpy", "numpy", "pandas", "pyarrow")


def versions() -> dict[str, str]:
    """Python's release and each package's, "not installed" where there is none."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    return found | {package: version_of(package) for package in PACKAGES}


def version_of(package: str) -> str:
    """A package's release, "not installed" where there is none, such as in a checkout on the path."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
