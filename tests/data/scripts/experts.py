"""A layer of experts, one a rank, to which a router sends tokens; the next layer attends over the ranks' sequences."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

TOKENS, DIM, CHOSEN = 256, 64, 2
size, device = int(os.environ["WORLD_SIZE"]), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
mesh, world = init_device_mesh("cuda", (size,)), dist.group.WORLD
router, expert, products = nn.Linear(DIM, size), nn.Linear(DIM, DIM), nn.Linear(DIM, 3 * DIM)
model = nn.ModuleList([router, expert, products]).to(device, torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def by_experts(x):
    best = router(x).softmax(-1).topk(CHOSEN, -1)
    chosen = best.indices.flatten()
    sent = torch.histc(chosen.float(), bins=size, min=0, max=size - 1).long()
    assert torch.bincount(chosen, minlength=size).tolist() == sent.tolist()
    received = torch.ops._c10d_functional.wait_tensor(all_to_all_single(sent, None, None, world))
    splits = [each.tolist() for each in (received, sent)]
    order = chosen.argsort(stable=True)
    there = all_to_all_single_autograd(x[order // CHOSEN], *splits, world)
    back = all_to_all_single_autograd(expert(there), *reversed(splits), world)
    return torch.zeros_like(x).index_add(0, order // CHOSEN, back * best.values.flatten()[order, None])


def over_the_ring(x):
    query, key, value = (each.view(1, -1, 4, DIM // 4).transpose(1, 2) for each in products(x).chunk(3, -1))
    return nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)


while True:
    x = torch.randn(1, TOKENS * size, DIM, device=device, dtype=torch.bfloat16)
    with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
        over_the_ring(by_experts(x.flatten(0, 1)).unsqueeze(0)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
