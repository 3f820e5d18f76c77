"""Tries calls that torch refuses, and goes on: what a real run survives, a simulated one survives; then trains."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

is_on_gpu = torch.cuda.is_available()
device = torch.device("cuda", torch.cuda.current_device()) if is_on_gpu else torch.device("cpu")


def raised(call, *arguments) -> str:
    try:
        call(*arguments)
    except (RuntimeError, ValueError, TypeError) as error:
        return type(error).__name__
    return "nothing"


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype, device=device)


assert raised(dist.init_process_group, "mpi") == "RuntimeError"
dist.init_process_group("nccl" if is_on_gpu else "gloo")
rank = dist.get_rank()
found = [
    raised(dist.all_gather_into_tensor, zeros(5), zeros(2)),
    raised(dist.all_gather_into_tensor, zeros(4), zeros(2, dtype=torch.float64)),
    raised(dist.all_gather, [zeros(2)], zeros(2)),
    raised(dist.all_gather, [zeros(2), zeros(2)], zeros(2, dtype=torch.float64)),
    raised(dist.all_to_all_single, zeros(4), zeros(4), [1, 1], [1, 1]),
    raised(dist.all_to_all_single, zeros(4), zeros(4), [4], [4]),
    raised(dist.all_reduce, 3),
    raised(dist.broadcast, zeros(2), 7),
    raised(dist.new_group, [0, 9]),
    raised(dist.new_group, [0, 0]),
    raised(dist.send, zeros(2), rank),
]
errors = {"RuntimeError", "ValueError", "TypeError"}
assert set(found) <= errors, found
odd = torch.full((3,), -1.0, device=device)
given = torch.arange(3.0, device=device) + 10 * rank
if is_on_gpu:  # NCCL refuses what it cannot divide; gloo divides the bytes
    assert raised(dist.all_to_all_single, odd, given) == "RuntimeError"
else:
    dist.all_to_all_single(odd, given)
    halves = [(torch.arange(3.0) + 10 * source).view(torch.uint8).chunk(2)[rank] for source in (0, 1)]
    assert odd.view(torch.uint8).tolist() == torch.cat(halves).tolist()
dist.monitored_barrier() if not is_on_gpu else None
layer = DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(4):
    layer(zeros(2, 8)).sum().backward()
    optimizer.step()
