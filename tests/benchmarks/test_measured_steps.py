"""The tables of errors in README.md and docs/accuracy/index.md are what is measured and predicted today."""

from __future__ import annotations

from benchmarks.measured_steps import TABLES, parts


def test_the_pages_have_todays_errors() -> None:
    """Run `python -m benchmarks.measured_steps --table` where they have not."""
    for page, by, text in TABLES:
        assert parts(page.read_text(encoding="utf-8"), by)[1] == text(), f"{page.name}{by}"
