"""Tensor parallelism within a host, data parallelism (FSDP2) over hosts, on a mesh of two dimensions.

torchrun --nproc-per-node 4 tensor_parallel.py
twinstep predict --hosts 2 --gpus-per-host 2 --profile emulated_200mbit --steps 5 tensor_parallel.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()


class Block(nn.Module):
    """A residual MLP: its first layer is cut by columns, its second by rows."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


kind = "cuda" if torch.cuda.is_available() else "cpu"
if kind == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if kind == "cuda" else "gloo")
gpus, world = int(os.environ["LOCAL_WORLD_SIZE"]), dist.get_world_size()
mesh = init_device_mesh(kind, (world // gpus, gpus), mesh_dim_names=("data", "tensor"))
torch.manual_seed(0)
blocks = [Block(128) for _ in range(2)]
model = nn.Sequential(*blocks).to(kind)
for block in blocks:
    parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["data"])
fully_shard(model, mesh=mesh["data"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(options.steps):
    torch.manual_seed(1000 * step + mesh["data"].get_local_rank())  # the ranks of a host see the same samples
    x = torch.randn(4, 16, 128, device=kind)
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()
dist.destroy_process_group()
