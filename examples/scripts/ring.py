"""Gradients averaged by hand: a ring of sends and receives, as in introductions to torch.distributed.

torchrun --nproc-per-node 4 ring.py
twinstep predict --hosts 4 --gpus-per-host 1 --profile emulated_200mbit --steps 5 ring.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
options = parser.parse_args()

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def average(gradients: torch.Tensor) -> None:
    """In place, by `world - 1` rounds that reduce a piece and as many that hand it on."""
    pieces = list(gradients.tensor_split(world))
    left, right = (rank - 1) % world, (rank + 1) % world
    for turn in range(2 * (world - 1)):
        sent, received = pieces[(rank - turn) % world], pieces[(rank - turn - 1) % world]
        buffer = torch.empty_like(received)
        request = dist.isend(sent.contiguous(), right)
        dist.recv(buffer, left)
        request.wait()
        if turn < world - 1:
            received += buffer
        else:
            received.copy_(buffer)
    gradients /= world


torch.manual_seed(1 + rank)
for _ in range(options.steps):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    average(flat)
    pieces = flat.split([parameter.numel() for parameter in model.parameters()])
    for parameter, piece in zip(model.parameters(), pieces, strict=True):
        parameter.grad.copy_(piece.view_as(parameter))
    optimizer.step()
dist.destroy_process_group()
