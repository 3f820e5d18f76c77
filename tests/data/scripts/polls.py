"""Polls events, streams and calls: none is over before simulated time has come to its end, and all loops end."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch, stream = torch.randn(2048, 4096, device="cuda"), torch.cuda.current_stream()


def polled(is_over):
    """Return how often an answer was no until it was yes."""
    count = 0
    while not is_over():
        count += 1
    return count


for _ in range(3):
    first, last, small = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    first.record()
    loss = model(batch).square().mean()
    last.record()
    began = time.perf_counter()
    assert polled(last.query) > 0
    took = time.perf_counter() - began
    assert last.query()
    assert first.query()
    assert torch.cuda.Event().query()
    assert abs(took - first.elapsed_time(last) / 1e3) < 0.2e-3, (took, first.elapsed_time(last))
    loss.backward()
    assert polled(stream.query) > 0
    assert stream.query()
    work = dist.all_reduce(model.weight.grad, async_op=True)
    assert not work.is_completed()
    assert 0 < polled(work.is_completed) < 1_000
    work.wait()
    small.record()
    optimizer.step()
