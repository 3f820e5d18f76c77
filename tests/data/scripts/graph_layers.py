"""Trains layers of a graph: products of sparse matrices, made on the CPU and on the device, with dense ones."""

import os

import torch
import torch.distributed as dist
from torch import nn

is_gpu, local = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local) if is_gpu else torch.device("cpu")
if is_gpu:
    torch.cuda.set_device(local)
dist.init_process_group("nccl" if is_gpu else "gloo")
torch.manual_seed(dist.get_rank())
edges = torch.randint(0, 12, (2, 40))
moved = torch.sparse_coo_tensor(edges, torch.ones(40), (12, 12)).coalesce().to(device)
made = torch.sparse_coo_tensor(edges.to(device), torch.ones(40, device=device), (12, 12))
layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2)).to(device)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.01)
x = torch.arange(72, device=device).reshape(12, 6) / 72
for _ in range(3):
    optimizer.zero_grad()
    y = torch.mm(moved, layers[0](x)).relu()
    y = torch.sparse.mm(made, layers[1](y)) + moved.t() @ y
    y = torch.sparse.addmm(y, made, y, beta=0.5, alpha=2) + torch.mv(moved, y[:, 0]).unsqueeze(1)
    loss = y.square().mean()
    loss.backward()
    for each in layers.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
dist.destroy_process_group()
