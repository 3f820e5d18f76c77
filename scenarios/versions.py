"""The versions of Python and packages that a run used; imports none of these packages."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("twinstep", "torch", "simpy", "numpy", "pandas", "pyarrow")


def versions() -> dict[str, str]:
    """Return Python's version, the machine type and each package's version."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    return found | {package: version_of(package) for package in PACKAGES}


@cache
def version_of(package: str) -> str:
    """Return a package's version; "not installed" if there is none, as in a checkout on the path."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
