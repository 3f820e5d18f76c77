"""In each step a kernel, and before it the work on the CPU that the argument names."""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

dist.init_process_group("nccl")
way, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
many = torch.ones(1 << 21)  # of 4 bytes


def loop(turns):
    added = 0
    for number in range(turns):
        added += number
    return added


class Samples(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        if way.startswith("workers"):
            assert sys.getprofile() is None
        loop(turns)
        return torch.tensor([float(place)])


def batches():
    if way.startswith(("workers", "loader")):
        loader = DataLoader(Samples(), batch_size=4, num_workers=int(way.partition(" ")[2] or 0))
        while True:
            yield from loader
    while True:
        yield torch.ones(4, 1)


large = torch.ones(8192, 8192, device="cuda")
ways = {
    # 20 ms of a GPU, for which the host waits: loading hides behind them although other processes slow it down.
    "workers 1": lambda: (torch.mm(large, large), torch.cuda.synchronize()),
    "operator": many.clone,
    "product": lambda: torch.mm(many.view(-1, 1024)[:1024], many.view(-1, 1024)[:1024]),
    "loop": lambda: loop(turns),
    "metric": lambda: (many.cumsum(0).topk(5), torch.rand(1 << 16).sort(), (many > 0).float().mean().item()),
}
model = torch.nn.Linear(1, 1, device="cuda")
optimizer = torch.optim.SGD(model.parameters())
for batch in batches():
    given = batch.to("cuda")
    ways.get(way, lambda: None)()
    model(given).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
