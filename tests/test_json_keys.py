"""The keys of each command's `--json` change only together with `data/json_keys`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import json_keys

# They start workers, or ranks: a second or more each.
_SLOW = {
    *("sim_what_if", "sim_sweep", "sim_search", "sim_curves", "reports_published"),
    *("real", "real_validate", "real_regret", "reports_compare"),
}


@pytest.mark.whole
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ()) for name in json_keys.COMMANDS]
)
def test_keys_of_json_are_as_recorded(name: str, tmp_path: Path) -> None:
    recorded = set((json_keys.FOLDER / f"{name}.txt").read_text().splitlines())
    now = set(json_keys.made_by(name, tmp_path).splitlines())
    gone, new = sorted(recorded - now), sorted(now - recorded)
    if name.startswith("real"):  # whether a measured run has stragglers, say, the machine decides
        gone, new = _outside_empty(gone, now), _outside_empty(new, recorded)
    assert (gone, new) == ([], []), "`python -m tests.json_keys --write`, and say it in CHANGELOG.md"


def _outside_empty(keys: list[str], others: set[str]) -> list[str]:
    """Return the keys that do not differ from the others' only by a list being empty on one side."""
    empty = {key.removesuffix(": nothing") for key in others if key.endswith(": nothing")}
    below = [key for key in keys if not any(key.startswith((f"{path}[]", f"{path}.")) for path in empty)]
    return [
        key
        for key in below
        if not (key.endswith(": nothing") and any(other.startswith(f"{key[:-9]}[]") for other in others))
    ]
