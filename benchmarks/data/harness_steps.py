"""A training step that its host bounds: 150 small modules under DistributedDataParallel, and collectives by hand.

    torchrun --nproc-per-node 1 harness_steps.py BACKEND STEPS FILE

Appends the host's time of each step to FILE, in us as JSON: "wall", and "cpu" of this thread; "turns", if it is
measured as on a GPU, are those of further ones that it takes without what measures it and with it, in turn.
"""

import json
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # has torch know backend "fake"
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MODULES, COLLECTIVES, WARM_UP = 150, 16, 10


def reduced(group: list[dist.ProcessGroup], bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Reduce a bucket of gradients."""
    work = dist.all_reduce(bucket.buffer(), async_op=True, group=group[0])
    assert work is not None
    work.wait()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def main(backend: str, steps: int, file: str) -> None:
    meeting = {"store": dist.HashStore(), "rank": 0, "world_size": 1} if backend == "fake" else {}
    dist.init_process_group(backend, **meeting)
    # gloo and NCCL have threads; in a process of one thread C++ counts references without atomic operations.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    torch.manual_seed(0)
    layers = [each for _ in range(MODULES // 2) for each in (nn.Linear(16, 16), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.025)
    current = [dist.group.WORLD]
    if backend == "fake":  # whose futures give no tensor, which DDP takes from them
        model.register_comm_hook(current, reduced)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    values, batch = torch.zeros(256), torch.randn(8, 16)

    def step(group: dist.ProcessGroup) -> None:
        current[0] = group
        optimizer.zero_grad()
        for _ in range(COLLECTIVES // 2):
            dist.all_reduce(values, group=group)
            work = dist.all_reduce(values, async_op=True, group=group)
            work.wait()
        model(batch).square().mean().backward()
        optimizer.step()

    wall_us, cpu_us = [], []
    for _ in range(WARM_UP + steps):
        began_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        step(dist.group.WORLD)
        wall_us.append((time.perf_counter_ns() - began_ns) / 1e3)
        cpu_us.append((time.thread_time_ns() - cpu_ns) / 1e3)
    found = {"wall": wall_us[WARM_UP:], "cpu": cpu_us[WARM_UP:]}
    if turns := sys.modules.get("benchmarks.harness_turns"):  # in a process of the benchmark's
        found["turns"] = turns.take(step)
    with open(file, "a") as out:
        print(json.dumps(found), file=out)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
