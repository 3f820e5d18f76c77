"""DistributedDataParallel with an optimizer whose state is sharded over the ranks (ZeRO, stage 1).

torchrun --nproc-per-node 2 zero.py
twinstep predict --hosts 2 --gpus-per-host 1 --profile emulated_200mbit --steps 5 zero.py
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(*[nn.Linear(192, 192) for _ in range(6)]).to(device))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
torch.manual_seed(1 + dist.get_rank())
for _ in range(options.steps):
    optimizer.zero_grad()
    model(torch.randn(32, 192, device=device)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
