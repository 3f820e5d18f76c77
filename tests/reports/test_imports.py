from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load(code: str) -> set[str]:
    """The packages of which a fresh interpreter loads modules for `code`; twinstep claims names of empty ones."""
    of_names = "{name.split('.')[0] for name in sys.modules if name not in ('sim', 'real')}"
    shown = f"{code}\nimport sys; print(' '.join({of_names}))"
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_reports_never_load_torch_or_simpy():
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "reports").rglob("*.py")]
    modules = [".".join(path.parts) for path in files if path.name != "__init__"]
    assert "reports.analysis.frames" in modules
    code = "\n".join(f"import {module}" for module in modules)
    names = load(code)
    assert {"pandas", "reports", "scenarios"} <= names
    assert not {"torch", "simpy", "sim", "real"} & names


def test_importing_reports_is_cheap():
    assert not {"pandas", "numpy", "pyarrow", "rich"} & load("import reports")


def test_the_public_names_are_found():
    names = load("import reports; [getattr(reports, name) for name in reports.__all__]; reports.load; reports.write")
    assert "pandas" in names
    done = subprocess.run(
        [sys.executable, "-c", "import reports; reports.nothing"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "AttributeError: module 'reports' has no attribute 'nothing'"
