from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.run import Run
from reports.store import run_folder as store
from tests.reports.recordings import by_hand

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "runs.md").read_text(encoding="utf-8")


def read_documented(name: str) -> list[str]:
    """The columns that the paragraph of one frame names, in order, without what its parentheses explain."""
    paragraph = DOCUMENT.split(f"**`{name}`**")[1].split("\n**`")[0].split("\n\n")[0]
    return list(dict.fromkeys(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", paragraph))))


@pytest.mark.parametrize("name", list(Run.of(by_hand()).derived()))
def test_every_column_is_documented(name):
    assert sorted(read_documented(name)) == sorted(getattr(Run.of(by_hand()), name).columns)


def test_the_pandas_lines_of_the_document_run(tmp_path):
    folder = store.write(by_hand(), tmp_path / "run")
    lines = DOCUMENT.split("## In pandas")[1].split("\n\n")[1:3]
    code = "\n".join(line.strip() for block in lines for line in block.splitlines())
    code = re.sub(r"reports\.load\(.*\)", f"reports.load({str(folder)!r})", code)
    assert code.count("run.") == 4
    exec(compile(code, "docs/reference/runs.md", "exec"), {})
