"""Scripts whose models lie over the ranks: experts to which tokens travel, and sequences that ranks share."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.test_gpu_script import SCRIPTS, played

TOKENS, DIM, CHOSEN, BFLOAT16_BYTES, FLOAT32_BYTES, INT64_BYTES = 256, 64, 2, 2, 4, 8


@pytest.mark.supports("expert parallelism, context parallelism (ring attention)", "GPUs")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_experts_and_ring_attention(ranks: int) -> None:
    """Tokens spread evenly over the experts: each rank sends each expert TOKENS x CHOSEN / ranks rows and gets as many.

    Rows go to the experts and back, and on the way back have gradients; those of the way there are of tokens, which
    have none. Attention gathers keys and values, and in its backward pass, which gathers them again, each block's
    gradients are handed on in float32 from rank to rank until they are home: one hop for each rank.
    """
    recording = played(SCRIPTS / "experts.py", ranks=(1, ranks))
    spans = [span for span in recording.spans if span.rank == 0 and span.step == 1 and span.kind != "step"]
    moved = Counter(span.bytes_in for span in spans if span.kind == "all_to_all_single")
    rows_of_an_expert = TOKENS * CHOSEN // ranks
    rows_bytes = ranks * rows_of_an_expert * DIM * BFLOAT16_BYTES
    block_elements = 2 * TOKENS * DIM  # keys and values
    assert moved == {ranks * INT64_BYTES: 1, rows_bytes: 3, block_elements * FLOAT32_BYTES: ranks}
    gathered = [span.bytes_in for span in spans if span.kind == "all_gather_into_tensor"]
    assert gathered == [block_elements * BFLOAT16_BYTES] * 2
