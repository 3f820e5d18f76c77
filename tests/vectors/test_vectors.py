"""Replays recorded vectors, one test a case and way: `pytest tests/vectors --vectors DIR`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vectors.conftest import NOTES
from tests.vectors.files import Replay, replays_of
from tests.vectors.formats import FORMATS

OWN = Path(__file__).parent / "data"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "replay" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--vectors")
        directory = OWN if chosen is None else Path(metafunc.config.invocation_params.dir, chosen)
        notes = metafunc.config.stash.setdefault(NOTES, [])
        replays = replays_of(directory, FORMATS, notes)
        marks = [[pytest.mark.real] if replay.way == "real" else [] for replay in replays]
        given = [pytest.param(replay, id=replay.id, marks=mark) for replay, mark in zip(replays, marks, strict=True)]
        metafunc.parametrize("replay", given)


# That weights are dropped is a warning, which has a test of its own in the sparse room.
@pytest.mark.filterwarnings("ignore:need_pos. positions are sent in place of the features' own weights")
def test_a_recorded_case_replays(replay: Replay, record_property: Callable[[str, object], None]) -> None:
    record_property("replay", (replay.file, replay.case, replay.way))
    replay.check()
