"""What users may import, with its signatures, changes only together with `data/public_api.txt`."""

from __future__ import annotations

from tests import public_api


def test_public_names_and_signatures_are_as_recorded() -> None:
    recorded, now = set(public_api.FILE.read_text().splitlines()), set(public_api.lines())
    gone, new = sorted(recorded - now), sorted(now - recorded)
    assert (gone, new) == ([], []), "`python -m tests.public_api --write`, and say it in CHANGELOG.md"
