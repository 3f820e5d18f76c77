"""Sums of a GPU's tensors over the backend of the first argument; rank 0 alone has a second stream."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % torch.cuda.device_count())
parameter = torch.nn.Parameter(torch.ones(4, device="cuda"))
optimizer = torch.optim.SGD([parameter])
count, large = torch.tensor([rank], device="cuda"), torch.ones(1 << 22, device="cuda")
side = torch.cuda.Stream()
dist.all_reduce(count)
assert count.item() == size * (size - 1) // 2
if sys.argv[1] == "gloo":
    try:
        dist.send(large, (rank + 1) % size)
    except RuntimeError as error:
        refused = str(error)
    assert "expected a tensor of the CPU" in refused, refused
own = torch.tensor([rank])
if "gloo" in sys.argv[1]:  # which asks no GPU, nor does a wait for the GPU ask it
    torch.ones(64, device="cuda").exp()
    if rank == 0:
        answer = dist.irecv(torch.tensor([0]), 1)
        torch.cuda.synchronize()
        dist.send(own, 1)
        answer.wait()
    elif rank == 1:
        dist.recv(own, 0)
        dist.send(own, 0)
if sys.argv[1] == "cpu:gloo,cuda:nccl":  # each rank's GPU waits for the other's, and its host does not
    if rank == 0:
        dist.all_reduce(large)
        dist.send(own, 1)
    elif rank == 1:
        dist.recv(own, 0)
        dist.all_reduce(large)
for _ in range(3):
    if rank == 0:
        with torch.cuda.stream(side):
            torch.ones(64, device="cuda").exp()
    work = dist.all_reduce(large, async_op=True)
    launched = torch.cuda.Event()
    launched.record()
    work.wait()
    assert launched.query() or sys.argv[1] != "gloo"  # who waits for gloo holds the host
    if "gloo" in sys.argv[1]:
        dist.all_reduce(torch.ones(4))
    parameter.grad = large[:4].clone()
    optimizer.step()
