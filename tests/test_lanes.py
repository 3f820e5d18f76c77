"""Tests that need fbgemm are skipped with the reason, whatever is wrong with the one that is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests import lanes
from tests.lanes import why_no_fbgemm

ROOT = Path(__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of the package that `import fbgemm_gpu` finds in a test, and leave the true one after it."""
    true = _take()
    (tmp_path / "fbgemm_gpu").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "fbgemm_gpu"
    _take()
    sys.modules.update(true)


def _take() -> dict[str, ModuleType]:
    """Return what was imported of fbgemm, which is no longer imported then."""
    names = [name for name in sys.modules if name.split(".")[0] == "fbgemm_gpu"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("raise OSError('fbgemm.so: undefined symbol: _ZN3c10')", "OSError: fbgemm.so: undefined symbol: _ZN3c10"),
        ("raise ImportError('no such library')", "ImportError: no such library"),
        ("", "ModuleNotFoundError: No module named 'fbgemm_gpu.split_table_batched_embeddings_ops_training'"),
    ],
)
def test_an_fbgemm_for_another_torch_is_a_reason_to_skip(text: str, kind: str, folder: Path) -> None:
    (folder / "__init__.py").write_text(text)
    found = why_no_fbgemm()
    assert found.startswith("fbgemm_gpu does not load with torch ")
    assert found.endswith(f"(1.6.0 is for 2.11, 1.8.0 for 2.13): {kind}")


def test_no_fbgemm_is_a_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fbgemm_gpu", None)
    assert why_no_fbgemm() == "needs fbgemm-gpu-cpu"


@pytest.mark.parametrize("lane", ["REAL", "EMULATED", "WHOLE", "SCRIPTED", "POOLED", "WAITING", "COMPILING", "LONGEST"])
def test_lanes_name_modules_and_folders_that_there_are(lane: str) -> None:
    assert [name for name in getattr(lanes, lane) if not [*ROOT.glob(f"{name}*")]] == []
