"""The only import of `scenarios` for how users write the keys of a scenario; reports import it from here."""

from __future__ import annotations

from collections.abc import Sequence


def user_key(path: Sequence[str]) -> str:
    """Return the scenario-file key of the value at `path` in a run's scenario; see `scenarios`' own `user_key`."""
    from scenarios.config.overrides import user_keys  # noqa: PLC0415  (knows all programs' tables)

    return user_keys.user_key(tuple(path))
