"""docs/explanation/sparse.md: its example runs, and the ranks get what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.lockstep import Lockstep

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "sparse.md"


def test_the_worked_example_runs_and_sends_what_the_page_says() -> None:
    _, example, _ = PAGE.read_text().split("```")
    names: dict[str, Any] = {}
    exec(example.removeprefix("python"), names)
    results = Lockstep(2, 2).run(names["program"])
    assert [(one.keys, one.values.tolist()) for one in results] == [
        (("a",), [0] * 4),
        (("a",), [1] * 4),
        (("b",), []),
        (("b",), [1] * 4),
    ]
