"""A transformer whose parameters are sharded over all ranks (FSDP2), or over the ranks of a host (HSDP).

torchrun --nproc-per-node 4 transformer_fsdp2.py
twinstep predict --hosts 2 --gpus-per-host 2 --profile emulated_200mbit --steps 5 transformer_fsdp2.py --hybrid
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--dim", type=int, default=128)
parser.add_argument("--hybrid", action="store_true", help="shard within a host, replicate over hosts")
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

has_gpu = torch.cuda.is_available()
kind = "cuda" if has_gpu else "cpu"
if has_gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if has_gpu else "gloo")
gpus, world = int(os.environ["LOCAL_WORLD_SIZE"]), dist.get_world_size()
if options.hybrid:
    mesh = init_device_mesh(kind, (world // gpus, gpus), mesh_dim_names=("replicas", "shards"))
else:
    mesh = init_device_mesh(kind, (world,))

torch.manual_seed(0)
with torch.device(kind):
    layers = [
        nn.TransformerEncoderLayer(options.dim, 4, 4 * options.dim, dropout=0.0, batch_first=True)
        for _ in range(options.layers)
    ]
    model = nn.Sequential(nn.Linear(64, options.dim), *layers, nn.Linear(options.dim, 1))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(1 + dist.get_rank())
for _ in range(options.steps):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 16, 64, device=kind)).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
dist.destroy_process_group()
