"""A damaged run folder, trace, log, recording or plan is read, or refused in sentences."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.generated.damaged import KINDS


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind == "recording")) for kind in KINDS]
)
def test_damaged_files_are_read_or_refused_in_a_sentence(kind: str, tmp_path: Path) -> None:
    for number in range(10):
        folder = tmp_path / f"{kind}-{number}"
        if (tmp_path / "csv").exists():
            (tmp_path / "csv").rename(tmp_path / f"csv-{number}")
        assert list(filter(None, KINDS[kind](folder, random.Random(f"7/{kind}/{number}")))) == []
