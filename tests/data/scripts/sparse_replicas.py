"""DistributedDataParallel over embeddings with sparse gradients: rows that ranks share, that they do not, and none."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

has_gpu = torch.cuda.is_available()
dist.init_process_group("gloo")
rank = dist.get_rank()
device = torch.device("cuda", rank) if has_gpu else torch.device("cpu")
torch.manual_seed(0)
tables = nn.ModuleList([nn.EmbeddingBag(1000, 16, mode="sum", sparse=True), nn.Embedding(50, 8, sparse=True)])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bags, self.rows, self.dense = *tables, nn.Linear(24, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.cat([self.bags(ids), self.rows(ids[:, 0] % 50)], 1)).mean()


model = DistributedDataParallel(Model().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.long), torch.empty(0, 4), (9, 4), check_invariants=True)
dist.all_reduce(empty)  # ranks that name no row
assert empty._nnz() == 0
polled = torch.sparse_coo_tensor(torch.tensor([[rank]]), torch.ones(1), (9,), device=device, check_invariants=True)
work = dist.all_reduce(polled, async_op=True)
while not work.is_completed():
    pass
assert polled.coalesce().indices()[0].tolist() == list(range(dist.get_world_size()))
for step in range(5):
    ids = (torch.arange(32 + rank).view(-1, 1) * torch.tensor([1, 7, 3]) + 40 * rank + step) % 1000
    loss = model(ids.to(device))
    loss.backward()
    named = [{int(each) for each in torch.cat(gathered).view(-1)} for gathered in [[ids], [ids[:, 0] % 50]]]
    for table, own in zip((model.module.bags, model.module.rows), named, strict=True):
        everyones = [set() for _ in range(dist.get_world_size())]
        dist.all_gather_object(everyones, own)
        assert table.weight.grad.is_sparse
        assert table.weight.grad.coalesce().indices()[0].tolist() == sorted(set().union(*everyones))
    optimizer.step()
    optimizer.zero_grad()
    weights = [torch.empty_like(model.module.bags.weight) for _ in range(dist.get_world_size())]
    dist.all_gather(weights, model.module.bags.weight.detach())
    assert has_gpu or all(torch.equal(weights[0], each) for each in weights)
