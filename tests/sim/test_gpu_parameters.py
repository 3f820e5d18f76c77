"""Parameters on simulated GPUs stay what they are when modules move, as on real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.seam.errors import ProgramError
from tests.sim.test_gpu_script import SCRIPTS, calls, play_script

PROFILES = {"dgx_h100": (1, 2), "emulated_200mbit": (2, 1)}


def test_moved_modules_make_the_calls_that_they_make_on_cpus() -> None:
    """The script asserts in both worlds what torch keeps: identity, ties, attributes, hooks, gradients, optimizers."""
    on_gpus, on_cpus = (
        play_script(SCRIPTS / "moved.py", profile=profile, ranks=ranks) for profile, ranks in PROFILES.items()
    )
    for rank in range(2):
        assert calls(on_gpus, rank) == calls(on_cpus, rank)
    # Embedding and head share 96 x 16; weight norm, scales, batch norm and GRU: 288, 16, 32 and 1,632.
    trained = 96 * 16 + 288 + 16 + 32 + 1632
    assert [one[4] for one in calls(on_gpus, 0) if one[1] == "all_reduce" and one[0] == 1] == [4 * trained]
    assert "AdamW.step" in {span.label for span in on_gpus.spans}


def test_shards_offloaded_to_the_cpu_are_gathered_and_reduced(tmp_path: Path) -> None:
    """FSDP1 sets its parameters' data from the CPU to the GPU and back while a graph refers to them."""
    file = tmp_path / "offloads.py"
    file.write_text(
        """import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.Linear(32, 32)
model = FullyShardedDataParallel(model, cpu_offload=CPUOffload(True), device_id=torch.cuda.current_device())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    for _ in range(2):  # gradients are accumulated
        model(torch.ones(2, 32, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    assert [each.device.type for each in model.parameters()] == ["cpu"]
"""
    )
    step = [(one[1], one[4], one[5]) for one in calls(play_script(file, ranks=(1, 2)), 0) if one[0] == 1]
    shard, whole = 4 * (32 * 32 + 32) // 2, 4 * (32 * 32 + 32)
    assert step == 2 * [("all_gather_into_tensor", shard, whole), ("reduce_scatter_tensor", whole, shard)]


def test_data_of_computed_tensors_stays_on_its_device(tmp_path: Path) -> None:
    file = tmp_path / "sets.py"
    file.write_text(
        "import torch\nfound = 2 * torch.ones(3, requires_grad=True)\nfound.data = torch.ones(3, device='cuda')\n"
    )
    with pytest.raises(ProgramError, match=r"sets\.py:3: RuntimeError: tensor.data of what autograd has computed"):
        play_script(file, ranks=(1, 1))
