"""Ranks meet in stores of their own, then train: each waits for what another one sets later."""

import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore("localhost", 29_700 + size, size, rank == 0, timeout=timedelta(seconds=60))
mine = dist.PrefixStore("mine", store)
for each in (store, mine):
    each.set(f"from {rank}", f"value of {rank}")
    assert each.get(f"from {(rank + 1) % size}") == f"value of {(rank + 1) % size}".encode()
    each.wait([f"from {other}" for other in range(size)], timedelta(seconds=30))
    assert each.check(["from 0"])
    assert not each.check(["nobody"])
    if each.add("count", 2) == 2 * size:
        each.set("all", "1")
    each.wait(["all"])
    assert each.add("count", 0) == 2 * size
    if rank == 0:
        assert each.compare_set("word", "", "a") == b"a"
        assert each.compare_set("word", "b", "c") == b"a"
        assert each.delete_key("from 0")
        each.set("done", "1")
    each.wait(["done"])
    assert not each.check(["from 0"])
    assert each.multi_get(["word", "count"]) == [b"a", str(2 * size).encode()]
files = dist.FileStore(os.path.join(tempfile.gettempdir(), f"stores-{os.environ['MASTER_PORT']}-{size}"), size)
files.add("here", 1)
while files.add("here", 0) < size:  # a rank that polls lets others run, too
    pass
if rank == 1:
    for key in range(3):
        mine.set(f"r{key}", "1")
while any(not mine.check([f"r{key}"]) for key in range(3)):  # polls of several keys in turn
    pass
assert mine.get("r0") + mine.get("r0") == b"11"
if hasattr(mine, "queue_push"):
    mine.queue_push("queue", f"{rank}")
    assert mine.queue_pop("queue").decode() in {"0", "1"}
dist.init_process_group("gloo", store=dist.PrefixStore("group", store), rank=rank, world_size=size)
dist.monitored_barrier()
told = [tempfile.mkdtemp() if rank == 0 else ""]
dist.broadcast_object_list(told)
if rank == 1:
    open(os.path.join(told[0], "ready"), "w").close()
while not os.path.exists(os.path.join(told[0], "ready")):  # a rank that sleeps lets others run
    time.sleep(0.01)
layer = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(4):
    if mine.check(["stop"]):  # a read in each step is no poll
        break
    layer(torch.ones(2, 8)).sum().backward()
    optimizer.step()
