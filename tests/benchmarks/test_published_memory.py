"""Published memory by scripts: what is asked of the simulator, and what counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from benchmarks import eager_steps, published_memory
from scenarios.seam.trace import ALWAYS, CACHED

GIB = 1 << 30


def test_the_fullest_gpu_counts_without_nccl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def play(script: Sequence[str], on: Sequence[str], out: Path) -> SimpleNamespace:
        asked.append((list(script), list(on), out.name))
        held = [(0, "tensors", 60, ALWAYS), (0, "free", 4, CACHED), (0, "communication buffers", 9, ALWAYS)]
        held += [(1, "tensors", 62, ALWAYS), (1, "free", 1, CACHED)]
        frame = pd.DataFrame(held, columns=["rank", "part", "size_bytes", "phases"])
        return SimpleNamespace(memory=frame.assign(size_bytes=frame["size_bytes"] * GIB))

    monkeypatch.setattr(eager_steps, "play", play)
    rows = pd.read_csv(published_memory.PUBLISHED)
    found = published_memory.predict(rows[rows["id"] == "titan-02"].iloc[0], tmp_path)
    assert found == {"allocated": 62.0, "reserved": 64.0}
    ((script, on, name),) = asked
    assert (script[1:], name) == (["--early", "--batch", "2", "--compile"], "titan-02")
    assert on[:6] == ["--profile", "dgx_h100", "--hosts", "1", "--gpus-per-host", "8"]


def test_rows_have_a_script_or_a_reason() -> None:
    rows = pd.read_csv(published_memory.PUBLISHED)
    assert (rows["script"].isna() == rows["why_not"].notna()).all()
    assert rows[["allocated_gib", "reserved_gib"]].notna().any(axis=1).all()
    assert rows["id"].is_unique


def test_rows_of_one_command_are_renewed_together_and_others_say_why_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def predict(row: pd.Series, folder: Path) -> dict[str, float]:
        asked.append(row["id"])
        return {"allocated": 1.0, "reserved": 2.0}

    monkeypatch.setattr(published_memory, "PREDICTED", tmp_path / "predicted.csv")
    monkeypatch.setattr(published_memory, "predict", predict)
    monkeypatch.setattr(sys, "argv", ["published_memory", "titan-03", "titan-12"])
    published_memory.main()
    assert (asked, list(published_memory.read_kept()["id"])) == (["titan-02"], ["titan-02", "titan-03"])
    assert capsys.readouterr().err == "titan-12: not predicted: the script has no asynchronous tensor parallelism\n"
