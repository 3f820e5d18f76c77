"""The one place where reports ask how a user writes a value of a run's scenario."""

from __future__ import annotations

from collections.abc import Sequence


def user_key(path: Sequence[str]) -> str:
    """Return the key of a scenario file for what stands at `path` in a run's scenario; see there."""
    from scenarios.config.overrides import user_keys  # noqa: PLC0415  (knows all programs' tables)

    return user_keys.user_key(tuple(path))
