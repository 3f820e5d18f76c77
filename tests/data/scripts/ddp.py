"""Trains a small model under DistributedDataParallel and says the mean loss of each step.

`python ddp.py [hook [bucket_cap_mb]]`
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [
    torch.nn.Linear(64, 256),
    torch.nn.ReLU(),
    torch.nn.Linear(256, 256),
    torch.nn.ReLU(),
    torch.nn.Linear(256, 1),
]
hook = sys.argv[1] if len(sys.argv) > 1 else ""
# torch's PowerSGD waits inside callbacks, for which gloo's two threads suffice with one bucket alone.
cap = float(sys.argv[2]) if len(sys.argv) > 2 else 25 if hook == "powersgd" else 0.2
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=cap)
if hook == "fp16":
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
elif hook == "powersgd":
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(6):
    features, labels = torch.randn(32, 64, generator=generator), torch.randn(32, 1, generator=generator)
    optimizer.zero_grad()
    loss = ((model(features) - labels) ** 2).mean()
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    print(f"step {step} rank {dist.get_rank()} {mean.item() / dist.get_world_size():.9g}", flush=True)
dist.destroy_process_group()
