"""In each step a long kernel, a copy between the CPU and the GPU of another kind, and twenty short kernels."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, device="cuda"))])
long, short = torch.randn(4096, 4096, device="cuda"), torch.zeros(1024, device="cuda")
pageable = torch.zeros(1 << 24)
pinned, made, empty = pageable.pin_memory(), torch.zeros(1 << 24, pin_memory=True), torch.empty_like(pageable)
of_gpu, few = torch.zeros(1 << 24, device="cuda"), torch.zeros(1024)
assert [each.is_pinned() for each in (pinned, made, pinned[1:], pageable, empty)] == [True] * 3 + [False] * 2
assert pinned.pin_memory() is pinned
ways = {
    "set-up": lambda: None,
    "nothing": lambda: None,
    "pinned": lambda: pinned.to("cuda", non_blocking=True),
    "pinned, made so": lambda: of_gpu.copy_(made, non_blocking=True),
    "pinned, blocking": lambda: pinned.to("cuda"),
    "pageable": lambda: pageable.to("cuda"),
    "pageable, non_blocking": lambda: pageable.to("cuda", non_blocking=True),
    "few": lambda: few.to("cuda", non_blocking=True),
    "back": of_gpu.cpu,
    "back, non_blocking": lambda: of_gpu.to("cpu", non_blocking=True),
    "back to pinned": lambda: pinned.copy_(of_gpu, non_blocking=True),
    "back to pageable": lambda: pageable.copy_(of_gpu, non_blocking=True),
}
kept = []  # what is freed takes the host time, which is measured
for way in ways.values():
    torch.mm(long, long)
    kept.append(way())
    for _ in range(20):
        short.add_(1)
    optimizer.step()
    torch.cuda.current_stream().synchronize()
dist.destroy_process_group()
