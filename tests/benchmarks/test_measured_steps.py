"""The table of errors in README.md and docs/accuracy/index.md is what is measured and predicted today."""

from __future__ import annotations

from benchmarks.measured_steps import PAGES, parts, table


def test_the_pages_have_todays_errors() -> None:
    """Run `python -m benchmarks.measured_steps --table` where they have not."""
    today = table()
    assert {page.name: parts(page.read_text(encoding="utf-8"))[1] for page in PAGES} == {
        page.name: today for page in PAGES
    }
