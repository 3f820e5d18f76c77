"""Trains recurrent cells on their own loop over time steps, with and without biases."""

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
cells = nn.ModuleList(kind(8, 8, bias=bias) for kind in (nn.LSTMCell, nn.GRUCell) for bias in (True, False)).to(device)
optimizer = torch.optim.SGD(cells.parameters(), lr=0.1)
given = torch.arange(5 * 4 * 8, device=device).reshape(5, 4, 8) / 160
for _ in range(3):
    optimizer.zero_grad()
    loss = torch.zeros((), device=device)
    for cell in cells:
        hidden = torch.zeros(4, 8, device=device)
        state = (hidden, hidden) if isinstance(cell, nn.LSTMCell) else hidden
        for step in given:
            state = cell(step, state)
        loss = loss + (state[0] * state[1] if isinstance(state, tuple) else state).square().mean()
    loss.backward()
    for each in cells.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
dist.destroy_process_group()
