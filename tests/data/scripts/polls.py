"""Polls events, streams and calls: none is over before simulated time has come to its end, and all loops end."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch, stream = torch.randn(2048, 4096, device="cuda"), torch.cuda.current_stream()
big = torch.empty(1 << 28, device="cuda")


def polled(is_over):
    """Return how often an answer was no until it was yes."""
    count = 0
    while not is_over():
        count += 1
    return count


def timed(wait):
    """Return the seconds of a wait for an all-reduce of 1 GB, which takes more than 1,000 polls."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    small = torch.cuda.Event()
    small.record()
    work = dist.all_reduce(big, async_op=True)
    wait(work, small)
    return time.perf_counter() - began


def waited(work, small):
    """Wait on the host."""
    work.wait()
    torch.cuda.synchronize()


def looked_in_turn(work, small):
    """Look at two things that are under way, and at one that is over."""
    work.wait()
    other = torch.cuda.Event()
    other.record()
    assert polled(lambda: small.query() and (other.query() or stream.query())) > 100


found = []
for step in range(3):
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
    found.append((work.is_completed(), polled(work.is_completed)))
    work.wait()
    if step == 1:
        expected = timed(waited)
        assert expected > 2e-3, expected
        for looks in (lambda work, _: polled(work.is_completed), looked_in_turn):
            took = timed(looks)
            assert abs(took - expected) < 1e-3, (took, expected)
    if step == 2:
        assert all(not is_over and 200 < count < 300 for is_over, count in found), found
    small.record()
    optimizer.step()
