"""Outputs at 80 columns: no line is longer, and no number is cut, in any report and for every ready scenario."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from reports.terminal import text
from reports.terminal.render import render_report
from tests.commands import command
from tests.reports.sections.test_every_report import CASES, report_of

LIBRARY = sorted(path.stem for path in Path(__file__).parents[3].joinpath("scenarios", "library").glob("*.toml"))
# Jobs of days whose screens differ from that of job_llama3 in numbers alone.
ALIKE = [name for name in LIBRARY if name.startswith("job_") and name != "job_llama3"]
NUMBER = re.compile(r"\d[\d.,]*\d|\d")
FIGURE = re.compile(r"[-+±]?\d[\d.,]* (?:%|ns|us|ms|s|B|[KMGT]iB|[kMG]?B/s)(?= |$)", re.MULTILINE)
WIDE = "1000"


def check(monkeypatch: pytest.MonkeyPatch, shown: Callable[[], str]) -> str:
    """Return what is shown at 80 columns; every number in it is one of the wide output, which has no others."""
    monkeypatch.setenv("COLUMNS", "80")
    narrow = shown()
    monkeypatch.setenv("COLUMNS", WIDE)
    wide = shown()
    lines = narrow.splitlines()
    assert max(map(cell_len, lines), default=0) <= text.WIDTH
    cut = {number for number in NUMBER.findall(narrow) if number not in {*NUMBER.findall(wide)}}
    assert not cut, [line for line in lines if cut.intersection(NUMBER.findall(line))]
    missing = Counter(FIGURE.findall(wide)) - Counter(FIGURE.findall(narrow))
    assert not missing
    return narrow


@pytest.mark.parametrize(("name", "make"), CASES)
def test_no_report_cuts_a_number(
    name: str, make: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report, of = report_of(name), make(tmp_path)
    check(monkeypatch, lambda: text.as_text(render_report(report, of)))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in LIBRARY]
)
def test_every_ready_scenario_has_a_first_screen_and_whole_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = f"runs/{name}-sim-20260102-030405"  # as long as the folder that the command chooses
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    first = command("sim", name, "--out", out).stdout.splitlines()
    assert len(first) <= 25
    assert first[-1] == f"{'job' if name.startswith('job_') else 'run'} folder: {out}"
    assert max(map(cell_len, first)) <= text.WIDTH
    check(monkeypatch, lambda: str(command("reports", "show", out).stdout))
    check(monkeypatch, lambda: str(command("reports", "show", out, "--full").stdout))
