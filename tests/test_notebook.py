"""The notebook of examples/ is executed as it stands, and committed without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_answer.ipynb"
MOST_CELLS = 15


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The code cells by their ids, executed."""
    given, done = json.loads(NOTEBOOK.read_text())["cells"], tmp_path_factory.mktemp("notebook") / "done.ipynb"
    assert len(given) <= MOST_CELLS
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in given)
    bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    execute = [sys.executable, "-m", "jupyter", "execute", str(NOTEBOOK), f"--output={done}", "--timeout=110"]
    ran = subprocess.run(
        execute, env={**os.environ, "PATH": bin_first}, capture_output=True, text=True, timeout=220, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return {cell["id"]: cell for cell in json.loads(done.read_text())["cells"] if cell["cell_type"] == "code"}


def html(cell: Any) -> str:
    (output,) = cell["outputs"]
    return "".join(output["data"]["text/html"])


def test_every_cell_answers(cells: dict[str, Any]) -> None:
    (said,) = cells["init"]["outputs"]
    assert "".join(said["text"]).startswith("job.toml: 8 tables (33 GiB in float32) on 1 x 4 H100")
    assert "step time" in html(cells["predict"])
    assert "TorchRec&#39;s planner" in html(cells["plan"])
    assert "GPUs twice as fast" in html(cells["what-if"])
    assert "slowest: " in html(cells["ranks"])
    assert html(cells["timeline"]).startswith('<iframe title="Timeline"')
