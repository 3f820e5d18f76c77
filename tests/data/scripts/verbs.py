"""Calls torch.distributed's collectives on four ranks, and looks at what comes."""

import torch
import torch.distributed as dist

dist.init_process_group()
assert dist.get_backend_config() == "cpu:gloo"
rank, size = dist.get_rank(), dist.get_world_size()
device_rank = torch.tensor([float(rank)])

summed = device_rank.clone()
dist.all_reduce(summed)
assert summed.item() == sum(range(size))
largest = device_rank.clone()
work = dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True)
work.wait()
assert largest.item() == size - 1
mean = device_rank.clone()
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
assert mean.item() == (size - 1) / 2
many = [torch.full((2, 3), float(rank)), torch.full((4,), 1.0)]
dist.all_reduce_coalesced(many)
assert many[0].eq(sum(range(size))).all()
assert many[1].eq(size).all()

sent = torch.arange(3) if rank == 1 else torch.zeros(3, dtype=torch.int64)
dist.broadcast(sent, src=1)
assert sent.tolist() == [0, 1, 2]

gathered = [torch.empty(2, 2) for _ in range(size)]
dist.all_gather(gathered, torch.full((2, 2), float(rank)))
assert [each[0, 0].item() for each in gathered] == list(range(size))
flat = torch.empty(size * 2)
dist.all_gather_into_tensor(flat, torch.full((2,), float(rank)))
assert flat.tolist() == [float(member) for member in range(size) for _ in range(2)]
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": member} for member in range(size)]
told = ["hello" if rank == 0 else None]
dist.broadcast_object_list(told, src=0)
assert told == ["hello"]

share = torch.empty(2)
dist.reduce_scatter_tensor(share, torch.arange(2.0 * size))
assert share.tolist() == [size * 2.0 * rank, size * (2.0 * rank + 1)]

sizes = [member + 1 for member in range(size)]
received = torch.empty(size * (rank + 1))
dist.all_to_all_single(received, torch.full((sum(sizes),), float(rank)), [rank + 1] * size, sizes)
assert received.tolist() == [float(member) for member in range(size) for _ in range(rank + 1)]
received = torch.empty(size * rank)  # of which rank 0 gets nothing
dist.all_to_all_single(received, torch.full((sum(range(size)),), float(rank)), [rank] * size, list(range(size)))
assert received.tolist() == [float(member) for member in range(size) for _ in range(rank)]
outputs = [torch.empty(1) for _ in range(size)]
dist.all_to_all(outputs, [torch.tensor([10.0 * rank + member]) for member in range(size)])
assert [each.item() for each in outputs] == [10.0 * member + rank for member in range(size)]

total = device_rank.clone()
dist.reduce(total, dst=1)
assert rank != 1 or total.item() == sum(range(size))
share = torch.empty(2)
dist.reduce_scatter(share, [torch.full((2,), float(member + rank)) for member in range(size)])
assert share.tolist() == [size * rank + sum(range(size))] * 2
both = [[torch.empty(1), torch.empty(2)] for _ in range(size)]
dist.all_gather_coalesced(both, [device_rank, torch.full((2,), 10.0 * rank)])
assert [[each[0].item() for each in of] for of in both] == [[member, 10.0 * member] for member in range(size)]

parts = [torch.empty(2) for _ in range(size)] if rank == 2 else None
dist.gather(torch.full((2,), float(rank)), parts, dst=2)
assert parts is None or [part[0].item() for part in parts] == list(range(size))
own = torch.empty(2)
dist.scatter(own, [torch.full((2,), float(member)) for member in range(size)] if rank == 3 else None, src=3)
assert own.tolist() == [rank, rank]

if rank == 0:
    dist.send(torch.tensor([7.0]), dst=3)
elif rank == 3:
    message = torch.empty(1)
    dist.recv(message, src=0)
    assert message.item() == 7
evens = dist.new_group([0, 2])
odds = dist.new_group([1, 3], backend="gloo")
assert dist.get_backend(odds if rank % 2 else evens) == ("gloo" if rank % 2 else dist.get_backend())
mine = device_rank.clone()
dist.all_reduce(mine, group=odds if rank % 2 else evens)
assert mine.item() == (4 if rank % 2 else 2)
dist.barrier()
print(f"rank {rank} is done", flush=True)
dist.destroy_process_group()
