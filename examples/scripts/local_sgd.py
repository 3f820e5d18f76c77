"""Ranks train by themselves, and average their parameters every few steps (post-local SGD).

torchrun --nproc-per-node 4 local_sgd.py
twinstep predict --hosts 2 --gpus-per-host 2 --profile emulated_200mbit --steps 8 local_sgd.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--period", type=int, default=4)
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1)).to(device))
gpus = int(os.environ["LOCAL_WORLD_SIZE"])
hosts = [range(first, first + gpus) for first in range(0, dist.get_world_size(), gpus)]
(own, _) = dist.new_subgroups_by_enumeration([list(host) for host in hosts])
model.register_comm_hook(PostLocalSGDState(None, own, start_localSGD_iter=2), post_localSGD_hook)
optimizer = PostLocalSGDOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), PeriodicModelAverager(options.period, warmup_steps=2)
)
torch.manual_seed(1 + dist.get_rank())
for _ in range(options.steps):
    optimizer.zero_grad()
    model(torch.randn(32, 128, device=device)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
