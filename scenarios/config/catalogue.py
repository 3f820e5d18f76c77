"""Where the ready hardware profiles and scenarios lie in this package; reading them is left to `include` and `load`."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
# The profile to write one's own from: no machine that anybody has measured.
TEMPLATE = "template"


def library_files() -> tuple[Path, ...]:
    """The ready scenarios, by name."""
    return tuple(sorted((_PACKAGE / "library").glob("*.toml")))


def profile_files() -> tuple[Path, ...]:
    """The ready hardware profiles, by name."""
    return tuple(sorted((_PACKAGE / "profiles").glob("*.toml")))


def profile_names() -> tuple[str, ...]:
    """What `cluster.profile` may say."""
    return tuple(path.stem for path in profile_files())


def profile_file(name: str) -> str | None:
    """The file of a ready profile, None if there is none of that name."""
    return next((os.path.normpath(path) for path in profile_files() if path.stem == name), None)
