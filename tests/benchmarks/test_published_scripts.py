"""Published steps by scripts: what is asked of the simulator, and how many micro-batches of a step are played."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import eager_steps, published_scripts


def test_a_further_micro_batch_takes_what_the_second_one_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def play(script: Sequence[str], on: Sequence[str], out: Path) -> float:
        asked.append((list(script), list(on), out.name))
        return 5.0 + 3.0 * int(script[script.index("--grad-accum") + 1])

    monkeypatch.setattr(eager_steps, "play", play)
    monkeypatch.setattr(eager_steps, "step_ms", float)
    rows: Any = published_scripts.choose(["foundry-082", "foundry-103", "dlebert-30"], 1).set_index("id", drop=False)
    assert published_scripts.predict(rows.loc["foundry-082"], tmp_path)[0] == 5.0 + 3.0 * 21
    assert [name for _, _, name in asked] == ["foundry-082-1", "foundry-082-2"]
    script, on, _ = asked[0]
    assert script[1:] == [
        *("--micro-batch", "3", "--grad-accum", "1", "--layers", "48", "--hidden", "7168", "--heads", "56"),
        *("--seq", "2048", "--checkpoint"),
    ]
    assert on[:6] == ["--profile", "dgx_a100", "--hosts", "1", "--gpus-per-host", "8"]
    assert "cluster.gpu.flash_attention=1" in on
    asked.clear()
    assert published_scripts.predict(rows.loc["foundry-103"], tmp_path)[0] == 5.0 + 3.0 * 2
    assert len(asked) == 1
    assert published_scripts.predict(rows.loc["dlebert-30"], tmp_path)[0] == 5.0 + 3.0 * 64
    assert asked[1][0][-2:] == ["--precision", "fp16 AMP"]
    assert "--ranks" not in asked[1][1]


def test_rows_are_chosen_by_family() -> None:
    rows: Any = published_scripts.choose([], 4)
    assert dict(rows.groupby("family").size()) == {"BERT": 2, "Llama 3": 1, "MPT": 15, "ResNet-50": 2}
