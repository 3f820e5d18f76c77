"""What a validation left in its folder is read back as it was, and its page says what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from reports.page import render
from reports.page.blocks import Chart
from reports.page.compare import validation as pages
from reports.page.sections import draw_sections
from reports.sections.model import Facts, PageLink, ReportTable, Words
from reports.sections.validation import VALIDATION, ValidationView
from reports.validation import folder as validation_folder
from reports.validation.folder import OPERATIONS, SCENARIOS, Validated, load
from reports.validation.validation import Validation
from tests.reports.page.browser import Browser
from tests.reports.refusals import refusal
from tests.reports.validation.test_validation import plays, validation

HEAD = {
    "command": "python -m real validate",
    "started": "2026-01-02T03:04:05",
    "is_complete": True,
    "machine": {"cpu": "x"},
}


def validations() -> list[Validation]:
    return [
        validation(plays([1000] * 12), plays([1100] * 12), name="one"),
        validation(plays([1300] * 12), plays([1000] * 12), name="two", is_too_noisy=True),
        validation(None, plays([1000] * 12), name="three", ended="rank 1 was killed"),
    ]


def write(folder: Path, found: list[Validation]) -> Validated:
    validation_folder.write(folder, HEAD, found)
    return load(folder)


def test_scenarios_and_operations_are_read_as_they_were(tmp_path: Path):
    wanted, found = validations(), write(tmp_path, validations())
    assert found.scenarios["scenario"].tolist() == ["one", "two", "three"]
    assert found.scenarios["error"].tolist()[:2] == [one.error for one in wanted[:2]]
    assert found.scenarios["measured_median_ns"].tolist() == [1100.0, 1000.0, 1000.0]
    assert found.scenarios["predicted_median_ns"].isna().tolist() == [False, False, True]
    assert found.scenarios[["inside", "is_too_noisy"]].to_numpy().tolist() == [
        [False, False],
        [False, True],
        [False, False],
    ]
    expected = pd.concat([one.operations for one in wanted], ignore_index=True)
    pd.testing.assert_frame_equal(found.operations.drop(columns="scenario"), expected)
    assert found.head["command"] == HEAD["command"]


def test_a_validation_that_measured_nothing_has_columns_and_no_rows(tmp_path: Path):
    found = write(tmp_path, [])
    assert (list(found.scenarios), list(found.operations)) == (list(SCENARIOS), list(OPERATIONS))
    assert {one.name: one.absent for one in draw_sections(VALIDATION, ValidationView(found)) if one.absent} == {
        "scatter": "No scenario has both a prediction and a measurement.",
        "scenarios": "No scenario had its turn.",
        "operations": "No operation was both predicted and measured.",
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "schema_version = None: expected 1"),
        ('{"schema_version": 2}', "schema_version = 2: expected 1"),
        ('{"schema_version": 1}', "not a validation's: KeyError('scenarios')"),
        (
            '{"schema_version": 1, "scenarios": [3]}',
            "not a validation's: TypeError(\"'int' object is not subscriptable\")",
        ),
    ],
)
def test_invalid_validations_are_refused_in_a_sentence(tmp_path: Path, content, sentence):
    path = tmp_path / "validation.json"
    path.write_text(content, encoding="utf-8")
    assert refusal(load, tmp_path) == f"{path}: {sentence}"


def test_a_folder_without_a_validation_is_refused_in_a_sentence(tmp_path: Path):
    sentence = f"{tmp_path}: expected two run folders, or that of a validation, which has validation.json"
    assert refusal(load, tmp_path) == sentence


def test_the_page_says_how_far_off_and_what_went_wrong(tmp_path: Path):
    found = write(tmp_path, validations())
    by_name = {one.name: one.blocks for one in draw_sections(VALIDATION, ValidationView(found))}
    assert {name: [type(block) for block in blocks] for name, blocks in by_name.items()} == {
        "summary": [Facts, Words],
        "scatter": [Chart],
        "scenarios": [Chart, ReportTable],
        "operations": [Chart, ReportTable],
    }
    facts, words = by_name["summary"]
    errors = json.loads((tmp_path / "validation.json").read_text(encoding="utf-8"))["errors"]
    assert [fact.raw for fact in facts.items[:4]] == [
        errors[name] for name in ("signed_median", "median", "p95", "worst")
    ]
    assert (facts.items[3].note, facts.items[4].value) == ("two", "0 of 2")
    assert words.items == [
        "three: ended early: rank 1 was killed",
        "1 scenario measured less precisely than requested",
    ]
    rows = {row[0]: row[-3:] for row in by_name["scenarios"][1].rows}
    assert rows == {"one": ["-9.1 %", "no", "no"], "two": ["+30.0 %", "no", "yes"], "three": ["-", "-", "no"]}


def test_runs_that_have_pages_are_led_to(tmp_path: Path):
    page = tmp_path / "one" / "measured" / "reports" / "report.html"
    page.parent.mkdir(parents=True)
    page.touch()
    found = write(tmp_path, validations())
    table = next(one for one in draw_sections(VALIDATION, ValidationView(found)) if one.name == "scenarios").blocks[1]
    assert [row[1:3] for row in table.rows] == [
        ["", PageLink("measured", "one/measured/reports/report.html")], ["", ""], ["", ""]
    ]  # fmt: skip


def test_the_page_opens_without_errors(tmp_path: Path, browser: Browser):
    path = tmp_path / "validation.html"
    render.write(pages.page(validation_folder.load(write(tmp_path, validations()).folder)), path)
    browser.open(path)
    browser.wait_until("document.documentElement.dataset.ready == 'yes'")
    assert (browser.console_errors(), browser.requests()) == ([], [])
    charts = "[...document.querySelectorAll('[data-chart]')].map(one => [one.dataset.chart, one.offsetHeight > 100])"
    assert dict(browser.evaluate(charts)) == dict.fromkeys(["scatter", "scenarios", "operations"], True)
    browser.keep("validation")
