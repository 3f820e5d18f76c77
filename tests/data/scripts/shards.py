"""FSDP2 with AdamW on a simulated GPU: the first step takes the memory that hand arithmetic gives, as later ones do."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

LAYERS, DIM = 16, 256
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
square = torch.ones(DIM, DIM, device="cuda", requires_grad=True)
(square @ square).sum().backward()
del square
workspaces = torch.cuda.memory_allocated()  # cuBLAS keeps one for each thread that multiplies, forward and back
assert workspaces == 2 * (32 << 20), workspaces
with torch.device("meta"):
    model = nn.Sequential(*[nn.Linear(DIM, DIM, bias=False) for _ in range(LAYERS)])
for layer in model:
    fully_shard(layer)
fully_shard(model)
model.to_empty(device="cuda")
for parameter in model.parameters():
    nn.init.normal_(parameter, 0, 0.02)
layer_bytes = 4 * DIM**2
shards = LAYERS * layer_bytes // dist.get_world_size()
assert shards <= torch.cuda.memory_allocated() - workspaces <= shards + 4096, torch.cuda.memory_allocated()
way = sys.argv[1]
optimizer = torch.optim.AdamW(model.parameters(), **({} if way == "default" else {way: True}))
# A temporary copy of the second moments, but of the fused kernel its counts of steps, which take 512 B a parameter.
beside = LAYERS * 512 if way == "fused" else shards
x = torch.randn(8, DIM, device="cuda")
small = 65536  # activations of 8 samples, and blocks of 512 B
peaks = []
for step in range(4):
    states = 0 if step == 0 else 2 * shards
    torch.cuda.reset_peak_memory_stats()
    model(x).square().mean().backward()
    unsharded = torch.cuda.max_memory_allocated() - workspaces - 2 * shards - states
    assert 0 < unsharded < 8 * layer_bytes, unsharded  # some layers, never the model
    torch.cuda.reset_peak_memory_stats()
    optimizer.step()
    peaks.append(torch.cuda.max_memory_allocated() - workspaces)
    optimizer.zero_grad()
assert peaks[0] == peaks[1] == peaks[2], peaks
assert 4 * shards + beside <= peaks[0] <= 4 * shards + beside + small, (peaks[0], shards)
dist.destroy_process_group()
