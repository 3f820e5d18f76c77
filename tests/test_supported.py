"""The table of what scripts may use on the page docs/reference/scripts.md: made of the `supports` marks of tests."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "reference" / "data" / "supported.csv"
HEAD = ("a script uses", "CPUs", "simulated GPUs", "same calls as a real run", "tested by")
# What a mark may say behind the feature, in the order of the columns; after "refused" one sentence refuses it there.
WORLDS = ("CPUs", "GPUs", "real")


def marks(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments of each `pytest.mark.supports(feature, world, ...)` of a test file, as they stand there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.supports":
            feature, *worlds = (ast.literal_eval(argument) for argument in node.args)
            yield feature, worlds


def table() -> str:
    """Return the table as CSV, features in alphabetical order, those that are refused last."""
    worlds: dict[str, set[str]] = {}
    files: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for feature, found in marks(path):
            worlds.setdefault(feature, set()).update(found)
            files.setdefault(feature, set()).add(path.relative_to(ROOT / "tests").as_posix())
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(HEAD)
    for feature in sorted(worlds, key=lambda name: ("refused" in worlds[name], name.strip("`").lower())):
        unknown = worlds[feature] - {*WORLDS, "refused"}
        assert not unknown, f"{feature}: {unknown} is none of {WORLDS} and refused"
        word = "refused" if "refused" in worlds[feature] else "yes"
        cells = [word if world in worlds[feature] else "" for world in WORLDS]
        held = ", ".join(f"`{name}`" for name in sorted(files[feature]))
        rows.writerow([feature, *cells, held])
    return text.getvalue()


def test_the_documentation_has_the_table() -> None:
    """Whoever adds a mark puts the printed table into docs/reference/data."""
    made = table()
    assert made == TABLE.read_text(encoding="utf-8"), f"{TABLE}: expected this table:\n{made}"
