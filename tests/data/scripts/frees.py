"""What a script deletes leaves nothing on a simulated GPU."""

import copy
import gc
import os
import sys
import weakref

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
x = torch.randint(1000, (64,), device=device)


def network():
    return nn.Sequential(nn.Embedding(1000, 256), *[nn.Linear(256, 256) for _ in range(4)]).to(device)


def train(model, optimizer):
    for _ in range(2):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def plain():
    model = network()
    train(model, torch.optim.AdamW(model.parameters()))


def replicas():
    model = DistributedDataParallel(network())
    train(model, torch.optim.SGD(model.parameters(), momentum=0.9))


def shards():
    model = network()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    train(model, torch.optim.AdamW(model.parameters(), fused=True))


def graph():
    model = network()
    loss = checkpoint(model, x, use_reentrant=False).sum()
    del model
    return weakref.ref(loss)


def cycle():
    model = network()
    model.own = [model]
    model.register_forward_hook(lambda *_: model)
    model(x)


def scaled():
    model, scaler = network(), torch.amp.GradScaler()
    optimizer = torch.optim.Adam(model.parameters())
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def calls():
    dist.all_reduce(torch.ones(1 << 20, device=device), async_op=True).wait()
    functional.all_reduce(torch.ones(1 << 20, device=device), "sum", dist.group.WORLD).add(1)


def copies():
    copy.deepcopy(network()).load_state_dict(network().state_dict())


def bags():
    """fbgemm's, where it is there."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType  # noqa: PLC0415
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation  # noqa: PLC0415
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (  # noqa: PLC0415
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(1000, 64, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        device=device,
    )
    module(x, torch.arange(0, 65, 8).to(device)).sum().backward()


twice = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).to(device)
checkpoint(twice, torch.ones(8, 8, device=device), use_reentrant=False).sum().backward()
del twice
gc.collect()
# cuBLAS and cuBLASLt keep workspaces of both passes' threads.
assert torch.cuda.memory_allocated() >> 20 == 2 * (32 + 1), torch.cuda.memory_allocated()
for way in [bags] if "bags" in sys.argv else [plain, replicas, shards, graph, cycle, scaled, calls, copies]:
    for _ in range(2):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        way()
        gc.collect()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_allocated() == before, (way.__name__, torch.cuda.memory_allocated() - before)
        assert torch.cuda.max_memory_allocated() > before
dist.destroy_process_group()
