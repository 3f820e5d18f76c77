"""Scripts whose models lie over the ranks: experts to which tokens travel, and sequences that ranks share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim.test_gpu_script import SCRIPTS, play_script

TOKENS, DIM, CHOSEN, BFLOAT16_BYTES, FLOAT32_BYTES, INT64_BYTES = 256, 64, 2, 2, 4, 8


@pytest.mark.supports("expert parallelism, context parallelism (ring attention)", "GPUs")
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_experts_and_ring_attention(ranks: int) -> None:
    """Tokens spread evenly over the experts: each rank sends each expert TOKENS x CHOSEN / ranks rows and gets as many.

    Rows go to the experts and back, and on the way back have gradients; those of the way there are of tokens, which
    have none. Attention gathers keys and values, and in its backward pass, which gathers them again, each block's
    gradients are handed on in float32 from rank to rank until they are home: one hop for each rank.
    """
    recording = play_script(SCRIPTS / "experts.py", ranks=(1, ranks))
    spans = [span for span in recording.spans if span.rank == 0 and span.step == 1 and span.kind != "step"]
    moved = Counter(span.bytes_in for span in spans if span.kind == "all_to_all_single")
    rows_of_an_expert = TOKENS * CHOSEN // ranks
    rows_bytes = ranks * rows_of_an_expert * DIM * BFLOAT16_BYTES
    block_elements = 2 * TOKENS * DIM  # keys and values
    assert moved == {ranks * INT64_BYTES: 1, rows_bytes: 3, block_elements * FLOAT32_BYTES: ranks}
    gathered = [span.bytes_in for span in spans if span.kind == "all_gather_into_tensor"]
    assert gathered == [block_elements * BFLOAT16_BYTES] * 2


@pytest.mark.parametrize("kept", ["policy", "[ATTENTION]", "[]"])
@pytest.mark.supports("selective activation checkpoints", "GPUs")
def test_a_selective_checkpoint_keeps_the_attention_of_a_gpu(kept: str, tmp_path: Path) -> None:
    """Its policy or list names a GPU's operator; attention that is not kept is computed anew."""
    (file := tmp_path / "selective.py").write_text(
        f"""import functools
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention.default
def policy(context, operator, *args, **more):
    return CheckpointPolicy.MUST_SAVE if operator is ATTENTION else CheckpointPolicy.PREFER_RECOMPUTE
layer = torch.nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(layer.parameters())
def attend(x):
    return scaled_dot_product_attention(*[layer(x).view(2, 64, 4, 16).transpose(1, 2)] * 3)
contexts = functools.partial(create_selective_checkpoint_contexts, {kept})
while True:
    x = torch.randn(2, 64, 64, device="cuda", dtype=torch.bfloat16)
    checkpoint(attend, x, use_reentrant=False, context_fn=contexts).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    recording = play_script(file, ranks=(1, 1))
    forward = [row.count for row in recording.kernels if row.operator == "scaled_dot_product_attention"]
    assert sum(forward) == (2 if kept == "[]" else 1)


@pytest.mark.supports("tensor parallelism, sequence parallelism, meshes of two dimensions", "GPUs")
def test_a_dtensor_that_is_cut_elsewhere_sends_each_rank_its_piece(tmp_path: Path) -> None:
    """From Shard(0) to Shard(1), and back in the backward pass: each call has all of a rank's shard."""
    (file := tmp_path / "cut_elsewhere.py").write_text(
        """import os
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (2,))
rows = torch.nn.Parameter(DTensor.from_local(torch.ones(4, 6, device="cuda"), mesh, [Shard(0)]))
optimizer = torch.optim.SGD([rows])
while True:
    columns = rows.redistribute(placements=[Shard(1)])
    assert columns.to_local().shape == (8, 3)
    (columns * columns).sum().backward()
    assert rows.grad.placements == (Shard(0),) and rows.grad.to_local().shape == (4, 6)
    optimizer.step()
    optimizer.zero_grad()
"""
    )
    spans = [span for span in play_script(file, ranks=(1, 2)).spans if span.rank == 0 and span.step == 1]
    exchanged = [(span.bytes_in, span.bytes_out) for span in spans if span.kind == "all_to_all"]
    assert exchanged == [(4 * 6 * FLOAT32_BYTES, 8 * 3 * FLOAT32_BYTES)] * 2
