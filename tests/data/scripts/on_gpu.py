"""Asks a GPU that is not there for what decides how a script goes on, and asserts what a GPU would say."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
assert torch.cuda.is_available()
torch.cuda.set_device(rank % torch.cuda.device_count())
x = torch.randn(4, 4, device="cuda")
assert x.is_cuda
assert not x.is_meta
assert x.device.type == "cuda"
ids = torch.arange(5).cuda()
assert ids.tolist() == [0, 1, 2, 3, 4]
assert (2 * ids).sum().item() == 20
assert torch.nonzero(torch.tensor([0, 1, 1], device="cuda")).tolist() == [[1], [2]]
assert x.cpu().device.type == "cpu"
assert torch.empty(3, device="meta").is_meta
lengths = torch.tensor([rank, 7], device="cuda")
gathered = [torch.empty_like(lengths) for _ in range(size)]
dist.all_gather(gathered, lengths)
assert [each.tolist() for each in gathered] == [[other, 7] for other in range(size)]
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": other} for other in range(size)]
if rank == 0:
    dist.send(torch.tensor([3, 4], device="cuda"), 1)
elif rank == 1:
    got = torch.empty(2, dtype=torch.int64, device="cuda")
    dist.recv(got, 0)
    assert got.tolist() == [3, 4]
layer = torch.nn.Linear(4, 3).to("cuda")
optimizer = torch.optim.AdamW(layer.parameters())
side = torch.cuda.Stream()
for _ in range(4):
    loss = layer(x).square().mean()
    loss.backward()
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        total = torch.ones(1 << 20, device="cuda")
        dist.all_reduce(total)
    torch.cuda.current_stream().wait_stream(side)
    optimizer.step()
    assert loss.item() == 1  # what nothing computes
torch.cuda.synchronize()
dist.destroy_process_group()
