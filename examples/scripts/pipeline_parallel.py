"""Each rank holds some layers; micro-batches go through them, one forward and one backward at a time (1F1B).

torchrun --nproc-per-node 2 pipeline_parallel.py
twinstep predict --hosts 2 --gpus-per-host 1 --profile emulated_200mbit --steps 5 pipeline_parallel.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batches", type=int, default=4)
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
layers = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).to(device)
stage = PipelineStage(layers, rank, world, device)
schedule = Schedule1F1B(stage, options.micro_batches, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
for step in range(options.steps):
    torch.manual_seed(step)
    x, target = torch.randn(32, 256, device=device), torch.randn(32, 256, device=device)
    optimizer.zero_grad()
    if rank == 0 and world > 1:
        schedule.step(x)
    elif rank == world - 1:
        schedule.step(*([x] if world == 1 else []), target=target)
    else:
        schedule.step()
    optimizer.step()
dist.destroy_process_group()
