"""Predicted plays against measured ones: which steps count, what is pooled, and the errors that follow."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

import pytest

from reports.analysis.repeats import OUTSIDE, Play, Plays
from reports.run import Run
from reports.sections.validation import VALIDATION, ValidationView
from reports.terminal.render import render_report
from reports.terminal.text import as_text, format_range
from reports.validation import folder as validation_folder
from reports.validation.folder import as_validated, content
from reports.validation.validation import Validation, errors_of
from scenarios.seam.trace import Recording, Span
from tests.reports.recordings import info, span

DOCUMENT = (Path(__file__).parents[3] / "docs" / "accuracy" / "validation.md").read_text(encoding="utf-8")


def recording(step_ns: list[int], *, scale: float = 1.0) -> Recording:
    """Two ranks whose steps take so long; rank 1 begins 10 ns later, and they all-reduce for half of it."""
    spans: list[Span] = []
    now = 0
    for step, length in enumerate(step_ns):
        for rank in range(2):
            begin = now + 10 * rank
            spans.append(span(rank, "step", begin, now + length, step=step, sequence=3 * step))
            half = begin + round(length * scale / 2)
            spans.append(span(rank, "all_reduce", begin, half, step=step, sequence=3 * step + 1, label="gradients"))
        now += length
    return Recording(info=info(), spans=spans)


def plays(*each: list[int]) -> Plays:
    return Plays([Play.of(Run.of(recording(step_ns))) for step_ns in each])


def validation(predicted: Plays | None, measured: Plays | None, **changes: object) -> Validation:
    known = Validation(
        name="one", file="one.toml", digest="d1", library="gloo", world_size=2, steps=12, predicted=predicted,
        measured=measured,
    )  # fmt: skip
    return dataclasses.replace(known, **changes)  # type: ignore[arg-type]


def render(validations: list[Validation], precision: float, max_error: float | None) -> str:
    found = as_validated(Path("folder"), {}, validations)
    return as_text(render_report(VALIDATION, ValidationView(found, validations, precision, max_error)))


def test_warm_up_of_measured_plays_does_not_count() -> None:
    played = recording([9000] * 3 + [1000] * 6)
    measured = Recording(info=dataclasses.replace(played.info, world="real"), spans=played.spans)
    assert [Play.of(Run.of(each)).step_ns for each in (played, measured)] == [(9000,) * 3 + (1000,) * 6, (1000,) * 6]


def test_steps_of_all_plays_are_pooled_and_medians_kept_by_play() -> None:
    both = plays([1000] * 9, [1200] * 9)
    assert both.sample.count == 18
    assert both.sample.median == 1100
    assert both.medians_ns == [1000, 1200]
    assert both.disagreement == pytest.approx(100 / 1100)


def test_a_narrow_interval_of_plays_that_disagree_is_not_known() -> None:
    """The third play lies between the others, and with it the pooled median's whole interval."""
    three = plays([900] * 30, [1000] * 30, [1100] * 30)
    assert three.sample.uncertainty == 0
    assert not three.is_known_to(0.02)
    assert three.is_known_to(0.1)
    assert plays([1000] * 30, [1002] * 30).is_known_to(0.02)
    assert not plays([1000] * 5).is_known_to(0.5)


def test_operations_are_the_medians_of_plays_and_what_lies_outside_a_rank_is_one() -> None:
    rows = plays([1000] * 9, [1200] * 9).operations.set_index("label")["median_ns"]
    assert rows["gradients"] == 550
    assert rows[OUTSIDE] == 5  # 0 on rank 0, 10 on rank 1


def test_errors_are_signed_shares_of_what_was_measured() -> None:
    one = validation(plays([1100] * 9), plays([980, 990, 1000, 1000, 1010, 1020]))
    assert one.error == pytest.approx(0.1)
    assert one.error_low == pytest.approx(1100 / 1020 - 1)
    assert one.error_high == pytest.approx(1100 / 980 - 1)
    assert one.inside is False
    assert validation(plays([900] * 6 + [1200] * 6), plays([1000] * 9)).inside is True
    assert one.is_past(0.05)
    assert not one.is_past(0.11)
    row = one.operations.set_index("label").loc["gradients"]
    assert row["error"] == pytest.approx(0.1)
    assert row["error_of_step"] == pytest.approx(0.05)


def test_a_scenario_with_one_side_has_no_error_and_is_in_no_summary() -> None:
    half = validation(plays([1000] * 9), None, ended="rank 1 was lost")
    assert math.isnan(half.error)
    assert half.inside is None
    assert not half.is_past(0.0)
    assert len(half.operations) == 0
    whole = validation(plays([1100] * 9), plays([1000] * 9), name="other")
    assert errors_of([half, whole]).worst == pytest.approx(0.1)
    shown = render([half, whole], 0.02, 0.05)
    assert "one: ENDED EARLY: rank 1 was lost" in shown
    assert "Errors of 1 scenario: median +10.0 %; absolute: median 10.0 %," in shown
    assert "Past 5.0 %: other" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "Errors: none of 1 scenario was compared." in render([half], 0.02, None)


def test_the_table_says_how_noisy_it_was() -> None:
    noisy = validation(plays([1000] * 9), plays([900] * 30, [1100] * 30), is_too_noisy=True)
    shown = " ".join(render([noisy], 0.02, None).split())
    assert (
        "one: TOO NOISY: median known to ±10.0 % after 2 rounds, whose own medians are 900 ns-1.10 us;"
        " requested: ±2.0 %" in shown
    )


def test_intervals_name_a_unit_once_where_it_is_the_same() -> None:
    assert format_range(7.9e6, 8.41e6) == "7.90-8.41 ms"
    assert format_range(980e3, 1.02e6) == "980 us-1.02 ms"
    assert format_range(5e3, 5e3) == "5.00 us"


def test_the_files_hold_every_scenario_and_are_replaced(tmp_path: Path) -> None:
    half = validation(plays([1000] * 9), None, name="half", ended="no")
    whole = validation(plays([1100] * 9), plays([1000] * 9, [1001] * 9))
    validation_folder.write(tmp_path, {"command": "c"}, [whole])
    validation_folder.write(tmp_path, {"command": "c"}, [whole, half])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["operations.csv", "validation.csv", "validation.json"]
    rows = list(csv.DictReader((tmp_path / "validation.csv").read_text().splitlines()))
    assert [row["name"] for row in rows] == ["one", "half"]
    assert (rows[0]["measured_rounds"], rows[1]["measured_rounds"]) == ("2", "")
    assert float(rows[0]["error"]) == whole.error
    operations = list(csv.DictReader((tmp_path / "operations.csv").read_text().splitlines()))
    assert {row["scenario"] for row in operations} == {"one"}
    stored = json.loads((tmp_path / "validation.json").read_text())
    assert (stored["schema_version"], stored["command"]) == (1, "c")
    assert stored["scenarios"] == content({}, [whole, half])["scenarios"]
    assert stored["scenarios"][0]["measured"]["round_steps_ns"] == [[1000] * 9, [1001] * 9]
    assert stored["scenarios"][1]["measured"] is None


def test_every_key_is_documented() -> None:
    one = content({}, [validation(plays([1100] * 9), plays([1000] * 9))])["scenarios"][0]
    keys = {*one, *one["predicted"], *one["measured"], *one["operations"][0]}
    assert [key for key in sorted(keys) if f"`{key}`" not in DOCUMENT] == []


def test_files_of_nothing_but_failures_can_be_written(tmp_path: Path) -> None:
    validation_folder.write(tmp_path, {}, [validation(None, None, ended="no")])
    assert "ended" in (tmp_path / "validation.csv").read_text()
