"""Trains a module that make_graphed_callables has captured, behind a layer that it has not; "plain": neither."""

import sys

import torch
from torch import nn

body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
head = nn.Linear(64, 8, device="cuda")
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
if "plain" not in sys.argv:
    body = torch.cuda.make_graphed_callables(body, (torch.randn(32, 64, device="cuda"),))
for _ in range(4):
    optimizer.zero_grad()
    head(body(torch.randn(32, 64, device="cuda"))).sum().backward()
    assert all(each.grad is not None for each in body.parameters())
    optimizer.step()
