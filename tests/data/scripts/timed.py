"""Takes the time of its steps in each way that scripts have, and writes it to the file that it is given, in ms."""

import json
import sys
import time
import timeit
from time import perf_counter

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

has_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if has_gpu else "gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank) if has_gpu else torch.device("cpu")
layers = [torch.nn.Linear(512, 512, device=device) for _ in range(4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, found = torch.randn(256, 512, device=device), []


class Stamped(torch.utils.data.Dataset):
    """Times at which workers read."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return time.time()


x.sum().item()  # the answer to which may be on its way while workers fork
assert len([*torch.utils.data.DataLoader(Stamped(), num_workers=2)]) == 4


def synchronize():
    if has_gpu:
        torch.cuda.synchronize()


for _ in range(4):
    synchronize()
    clocks = (perf_counter, time.time, time.monotonic, timeit.default_timer)
    of_ns = (time.perf_counter_ns, time.time_ns, time.monotonic_ns)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if has_gpu else []
    begun, begun_ns = [clock() for clock in clocks], [clock() for clock in of_ns]
    if has_gpu:
        events[0].record()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if has_gpu:
        events[1].record()
    synchronize()
    times = [1e3 * (clock() - begin) for clock, begin in zip(clocks, begun, strict=True)]
    times += [(clock() - begin) / 1e6 for clock, begin in zip(of_ns, begun_ns, strict=True)]
    found.append([*times, *([events[0].elapsed_time(events[1])] if has_gpu else [])])
before = perf_counter()
time.sleep(0.01)
assert time.perf_counter() - before >= 0.00999
deadline = time.monotonic() + 0.001
while time.monotonic() < deadline:  # comes to its end
    pass
if rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
dist.destroy_process_group()
