"""Scripts whose models lie over the ranks: experts to which tokens travel, and sequences that ranks share."""

from __future__ import annotations

import re

import pytest

from scenarios.workloads.script.recording import hints
from tests.sim.test_gpu_script import SCRIPTS, played

RANKS, TOKENS, DIM, CHOSEN, BFLOAT16_BYTES, FLOAT32_BYTES = 2, 256, 64, 2, 2, 4


@pytest.mark.supports("expert parallelism, context parallelism (ring attention)", "GPUs")
def test_experts_and_ring_attention(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Tokens spread evenly over the experts: forward and back, each rank sends each expert as many of its choices."""
    monkeypatch.setattr(hints, "MANY_RANKS", RANKS)
    monkeypatch.setattr(hints, "LONG_S", 0.0)
    recording = played(SCRIPTS / "experts.py", ranks=(1, RANKS))
    spans = [span for span in recording.spans if span.rank == 0 and span.step == 1 and span.kind != "step"]
    moved = [span.bytes_in for span in spans if span.kind == "all_to_all_single" and span.bytes_in > RANKS * 8]
    sent, turned = TOKENS * CHOSEN * DIM * BFLOAT16_BYTES, 2 * TOKENS * DIM * FLOAT32_BYTES
    assert moved.count(sent) == 3  # to the experts, back, and the gradients of the way back, as tokens have none
    assert moved.count(turned) == RANKS  # gradients of keys and values go round the ring in float32
    note = (
        r"note: 2 ranks were played one by one in \d+ s and are of 1 class; --ranks alike plays one rank of each class"
    )
    assert re.search(note, capfd.readouterr().err)
