"""The example of docs/reference/planner.md prints what the page says."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "planner.md").read_text()


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = PAGE.split("\nprints\n")
    exec(dedent(code[code.index("    from scenarios.planner") :]), {})
    expected = dedent(printed[: printed.index("\n`twinstep planner FILE`")]).strip()
    assert capsys.readouterr().out.strip() == expected
