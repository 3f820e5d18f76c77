from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.generated.pairs import KINDS, is_wrong, pairs


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_better_part_makes_no_step_slower(kind: str, tmp_path: Path) -> None:
    for pair in islice(pairs(0, kind), 3):
        assert not is_wrong(pair, tmp_path / "scenario.toml"), f"{pair.part} x {pair.factor}: {pair.worse}"
