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
    assert (gone, new) == ([], []), "`python -m tests.json_keys --write`, and say it in CHANGELOG.md"
