"""Published memory by scripts: what is asked of the simulator, and that the fullest GPU counts, with all its parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from benchmarks import eager_steps, published_memory

GIB = 1 << 30


def test_the_fullest_gpu_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def played(script: Sequence[str], on: Sequence[str], out: Path) -> SimpleNamespace:
        asked.append((list(script), list(on), out.name))
        parts = [(0, 60 * GIB), (0, 1 * GIB), (1, 62 * GIB)]
        return SimpleNamespace(memory=pd.DataFrame(parts, columns=["rank", "size_bytes"]))

    monkeypatch.setattr(eager_steps, "played", played)
    rows = pd.read_csv(published_memory.PUBLISHED)
    (found,) = published_memory.compared(rows[rows["id"] == "titan-02"])
    assert (found["published_gib"], found["predicted_gib"]) == (77.0, 62.0)
    assert found["error"] == pytest.approx(62 / 77 - 1)
    ((script, on, name),) = asked
    assert (script[1:], name) == (["--batch", "2", "--compile"], "titan-02")
    assert on[:6] == ["--profile", "dgx_h100", "--hosts", "1", "--gpus-per-host", "8"]
