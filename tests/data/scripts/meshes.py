"""A model that lies over all ranks, on CPUs or GPUs, in the way that the first argument names.

hybrid: shards within halves of the world, replicas across; uneven: shards of 50,257 rows; sequence: tensor and sequence
parallel, with the loss's words cut; interleaved: two pipeline stages each.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional

WORDS, UNEVEN_WORDS, DIM, LENGTH, STAGES = 50, 50257, 32, 16, 2
kind = sys.argv[1]
device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
mesh = init_device_mesh(device, (size,))


class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words, self.norm = nn.Embedding(words, DIM), nn.LayerNorm(DIM)
        self.up, self.down, self.out = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM), nn.Linear(DIM, words)

    def forward(self, ids):
        return self.out(self.down(self.up(self.norm(self.words(ids))).relu()))


def of_model(model, words):
    """Return a step of a model that gives scores of words."""

    def step():
        ids = torch.randint(words, (2, LENGTH), device=device)
        with loss_parallel() if kind == "sequence" else torch.enable_grad():
            functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    return model, step


def hybrid():
    model = Model(WORDS).to(device)
    return of_model(
        fully_shard(model, mesh=init_device_mesh(device, (2, size // 2), mesh_dim_names=("across", "within"))), WORDS
    )


def uneven():
    return of_model(fully_shard(Model(UNEVEN_WORDS).to(device), mesh=mesh), UNEVEN_WORDS)


def sequence():
    cut = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
        "out": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    return of_model(parallelize_module(Model(WORDS).to(device), mesh, cut), WORDS)


def interleaved():
    parts = nn.ModuleList(nn.Linear(DIM, DIM).to(device) for _ in range(STAGES))
    stages = [
        PipelineStage(part, rank + place * size, STAGES * size, torch.device(device))
        for place, part in enumerate(parts)
    ]
    schedule = ScheduleInterleaved1F1B(stages, 2 * size, loss_fn=functional.mse_loss)

    def step():
        x, target = torch.randn(2, 4 * size, DIM, device=device)
        schedule.step(*([x] if rank == 0 else []), target=target if rank == size - 1 else None)

    return parts, step


model, step = {"hybrid": hybrid, "uneven": uneven, "sequence": sequence, "interleaved": interleaved}[kind]()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    step()
    optimizer.step()
    optimizer.zero_grad()
