from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reports.run import Run
from reports.sections.run import changes
from reports.sections.run.subject import RunView
from scenarios.seam.trace import Advice
from tests.reports.recordings import by_hand, with_changes


@pytest.fixture
def run() -> Run:
    return Run.of(with_changes(by_hand()))


def test_changes_are_sorted_by_gain_with_unsimulated_ones_last(run: Run) -> None:
    found = changes.rank_changes(run)
    assert found["change"].tolist() == ["as it is", "GPUs twice as fast", "twice the hosts"]
    assert found["gain"].tolist()[:2] == [0.0, 0.25]
    assert np.isnan(found[["gain", "step_ns", "transfer_share"]].iloc[2].to_numpy(float)).all()
    assert (found["transfer_share"].iloc[1], found["wait_share"].iloc[1]) == (30 / 80, 5 / 80)


def test_changes_are_shown_or_have_a_reason(run: Run) -> None:
    found = changes.rank_changes(run)
    [table] = changes.tables(found)
    grid = table.grid("page")
    assert table.title == changes.TITLES["hardware"]
    assert [column.title for column in grid.columns] == ["change", "step", "transfer", "waiting", "gain"]
    assert [column.title for column in table.grid("terminal").columns] == ["change", "step", "gain"]
    assert grid.rows == [
        ["as it is", "100 ns", "30.0 %", "5.0 %", ""],
        ["GPUs twice as fast", "80 ns", "37.5 %", "6.2 %", "+25.0 %"],
    ]
    assert table.raw == {"best": 0.25}
    assert changes.not_played(found) == ["not simulated: twice the hosts: it has two"]
    assert changes.options(found) == ["GPUs twice as fast: --set a=2"]
    assert changes.best(run) == "largest single gains: bought: GPUs twice as fast, +25.0 % throughput"


def test_bars_are_the_time_saved_of_a_step_for_as_many_samples() -> None:
    recording = with_changes(by_hand())
    first, _, faster = recording.what_if
    batch = dataclasses.replace(faster, change="twice the batch", group="setting", step_ns=160.0, speed=1.25)
    slower = dataclasses.replace(faster, change="slower", group="setting", step_ns=200.0, speed=0.5)
    hosts = dataclasses.replace(faster, change="twice the hosts", group="more")
    run = Run.of(dataclasses.replace(recording, what_if=[first, faster, batch, slower, hosts]))
    [found] = changes.saving_bars(changes.rank_changes(run))
    assert [(group.title, group.bars) for group in found.groups] == [
        ("Free: settings", [("twice the batch", pytest.approx(0.2), "-20 ns (-20.0 %)")]),
        ("Bought: hardware", [("GPUs twice as fast", pytest.approx(0.2), "-20 ns (-20.0 %)")]),
    ]
    assert found.note == "Bar: time saved; its track: the whole step, 100 ns. Without a saving: 1 other change."


def test_changes_of_every_prediction_are_bars_where_no_others_were_requested() -> None:
    recording = by_hand()
    advice = tuple(
        Advice(change=name, made_by="", saved_ns=100 * share, share=share)
        for name, share in (("graphs", 0.25), ("none", 0.0))
    )
    run = Run.of(dataclasses.replace(recording, info=dataclasses.replace(recording.info, advice=advice)))
    found = changes.CHANGES.show(RunView.of(run), "page")
    assert found is not None
    bars, words = found.blocks
    assert [group.bars for group in bars.groups] == [[("graphs", 0.25, "-25 ns (-25.0 %)")]]
    assert words.text.startswith("Further changes are not simulated")


def test_twice_the_gpus_are_ranked_apart_and_gain_per_gpu() -> None:
    recording = with_changes(by_hand())
    faster, first = recording.what_if[2], recording.what_if[0]
    hosts = dataclasses.replace(faster, change="twice the hosts", group="more", step_ns=62.5)
    run = Run.of(dataclasses.replace(recording, what_if=[first, hosts, faster]))
    apart = list(changes.tables(changes.rank_changes(run)))[1]
    assert apart.grid("terminal").rows == [
        ["as it is", "100 ns", "", ""],
        ["twice the hosts", "62 ns", "+60.0 %", "-20.0 %"],
    ]
    assert changes.best_of_groups(run) == ["bought: GPUs twice as fast, +25.0 % throughput"]


def test_a_gain_whose_interval_has_both_signs_is_a_range_and_no_largest_gain() -> None:
    recording = with_changes(by_hand())
    speeds = {"GPUs twice as fast": (1.05, 0.98, 1.2), "no faults": (1.04, 1.01, 1.3)}
    rows = [*recording.what_if[:1]]
    rows += [
        dataclasses.replace(rows[0], change=name, group="diagnosis", speed=speed, speed_low=low, speed_high=high)
        for name, (speed, low, high) in speeds.items()
    ]
    run = Run.of(dataclasses.replace(recording, what_if=rows))
    found = changes.rank_changes(run)
    [table] = changes.tables(found)
    assert [row[-1] for row in table.grid("page").rows] == ["", "-2.0 to +20.0 %", "+4.0 %"]
    assert changes.best(run) == "largest single gains: diagnosis: no faults, +4.0 % throughput"
    assert changes.RANGE_NOTE in changes.notes(found)


def test_moved_tables_are_counted_by_change() -> None:
    recording = with_changes(by_hand())
    rows = [dataclasses.replace(row, tables=26) for row in recording.what_if]
    run = Run.of(dataclasses.replace(recording, what_if=rows))
    assert changes.notes(changes.rank_changes(run))[-1] == (
        "All changes keep the plan of the tables; --replan plans them anew."
    )
    rows[2] = dataclasses.replace(rows[2], tables_moved=15)
    run = Run.of(dataclasses.replace(recording, what_if=rows))
    said = changes.notes(changes.rank_changes(run))[-1]
    assert said.startswith("Tables placed anew: GPUs twice as fast (15 of 26 tables moved). All other")


def test_changes_of_an_earlier_release_have_gains_by_samples_or_steps() -> None:
    recording = with_changes(by_hand())
    rows = [dataclasses.replace(row, group="", samples_per_s=at * 100.0) for at, row in enumerate(recording.what_if, 1)]
    found = changes.rank_changes(Run.of(dataclasses.replace(recording, what_if=rows)))
    assert found["gain"].tolist()[:2] == [0.0, 2.0]
    assert [table.title for table in changes.tables(found)] == [changes.TITLES[""]]


def test_a_run_that_nobody_asked_has_none() -> None:
    run = Run.of(by_hand())
    assert changes.best(run) == ""
    for output in ("terminal", "page"):
        section = changes.CHANGES.show(RunView.of(run), output)
        assert section is not None
        assert "--what-if" in section.absent
