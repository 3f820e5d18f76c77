"""The notebook of examples/ is executed as it stands, and committed without outputs."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import command

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_answer.ipynb"
MOST_CELLS = 15


def execute_here(cells: list[Any]) -> dict[str, str]:
    names: dict[str, Any] = {}
    return {cell["id"]: answer("".join(cell["source"]), names) for cell in cells}


def answer(source: str, names: dict[str, Any]) -> str:
    """Execute a cell; return what Jupyter shows of its last line."""
    if source.startswith("!"):
        return command(*shlex.split(source[1:])).stdout
    *body, last = ast.parse(source).body
    assert isinstance(last, ast.Expr)
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def execute_in_jupyter(_: list[Any]) -> dict[str, str]:
    bin_first = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    execute = [sys.executable, "-m", "jupyter", "execute", str(NOTEBOOK), "--timeout=110"]
    execute.append(f"--output={Path('done.ipynb').resolve()}")
    ran = subprocess.run(
        execute, env={**os.environ, "PATH": bin_first}, capture_output=True, text=True, timeout=220, check=False
    )
    assert ran.returncode == 0, ran.stderr
    done = [cell for cell in json.loads(Path("done.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = {cell["id"]: cell["outputs"][0] for cell in done}
    return {
        name: "".join(one["text"] if "text" in one else one["data"].get("text/html", one["data"]["text/plain"]))
        for name, one in outputs.items()
    }


@pytest.mark.parametrize("execute", [execute_here, pytest.param(execute_in_jupyter, marks=pytest.mark.slow)])
def test_every_cell_answers(execute: Any, tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert len(cells) <= MOST_CELLS
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    with contextlib.chdir(tmp_path):
        shown = execute([cell for cell in cells if cell["cell_type"] == "code"])
    assert shown["init"].startswith("job.toml: 8 tables (33 GiB in float32) on 1 x 4 H100")
    assert "step time" in shown["predict"]
    assert "TorchRec&#39;s planner" in shown["plan"]
    assert "GPUs twice as fast" in shown["what-if"]
    assert "slowest: " in shown["ranks"]
    assert shown["timeline"].startswith('<iframe title="Timeline"')
