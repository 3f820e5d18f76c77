"""A rank that is killed, stopped or told to raise anywhere ends the run as `tests.real.endings` has it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.real import endings, warm_forkers


@pytest.mark.parametrize(
    ("number", "kind"),
    # The first of them always: the others are told of one by one in test_launcher.
    [pytest.param(*each, marks=[pytest.mark.slow] * (each[0] > 0)) for each in enumerate(endings.KINDS)],
)
def test_a_fault_anywhere_is_one_sentence_and_what_was_measured_is_kept(number: int, kind: str, tmp_path: Path) -> None:
    warm_forkers.server()  # none of the processes that the run must end
    given = dataclasses.replace(endings.trial(1, number), kind=kind)
    _, _, wrong = endings.play(given, tmp_path, timeout_s=15.0)  # beside other tests, starting alone takes seconds
    assert wrong == []
