"""Replays recorded vectors, one test a case and way: `pytest tests/vectors --vectors DIR`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vectors.catalogue import FORMATS
from tests.vectors.conftest import NOTES
from tests.vectors.files import Replay, replays_of

OWN = Path(__file__).parent / "data"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "replay" in metafunc.fixturenames:
        given = metafunc.config.getoption("--vectors")
        directory = OWN if given is None else Path(metafunc.config.invocation_params.dir, given)
        notes = metafunc.config.stash.setdefault(NOTES, [])
        replays = replays_of(directory, FORMATS, notes)
        metafunc.parametrize("replay", [pytest.param(replay, id=replay.id) for replay in replays])


# That weights are dropped is a warning, which has a test of its own in the sparse room.
@pytest.mark.filterwarnings("ignore:need_pos. positions are sent in place of the features' own weights")
def test_a_recorded_case_replays(replay: Replay, record_property: Callable[[str, object], None]) -> None:
    record_property("replay", (replay.file, replay.case, replay.way))
    replay.check()
