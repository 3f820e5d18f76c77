from __future__ import annotations

import numpy as np
import pytest

from reports.page.run.what_a_step_is import changes_of
from reports.run import Run
from reports.terminal import changes
from tests.reports.recordings import by_hand, with_changes


@pytest.fixture
def run() -> Run:
    return Run.of(with_changes(by_hand()))


def test_what_gains_most_comes_first_and_what_was_not_played_last(run: Run) -> None:
    found = changes.ranked(run)
    assert found["change"].tolist() == ["as it is", "GPUs twice as fast", "twice the hosts"]
    assert found["gain"].tolist()[:2] == [0.0, 0.25]
    assert np.isnan(found[["gain", "step_ns", "transfer_share"]].iloc[2].to_numpy(float)).all()
    assert (found["transfer_share"].iloc[1], found["wait_share"].iloc[1]) == (30 / 80, 5 / 80)


def test_each_is_shown_or_said_why_it_is_not(run: Run) -> None:
    found = changes.ranked(run)
    assert changes.table_rows(found) == [
        ["as it is", "100 ns", "-", "30.0 %", "5.0 %", ""],
        ["GPUs twice as fast", "80 ns", "-", "37.5 %", "6.2 %", "+25.0 %"],
    ]
    assert changes.not_played(found) == ["not played: twice the hosts: it has two"]
    assert changes.options(found) == ["GPUs twice as fast: --set a=2"]
    assert changes.best(run) == "of single changes most is gained by GPUs twice as fast: +25.0 %"


def test_a_run_that_nobody_asked_has_none() -> None:
    run = Run.of(by_hand())
    assert changes.best(run) == ""
    assert list(changes.summarize(run)) == []
    assert "--what-if" in changes_of(run).absent
