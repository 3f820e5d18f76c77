"""Moves modules to their device and asserts what torch does there: parameters stay the same objects.

It holds on the CPU, on a GPU, and on one that is simulated.
"""

import copy
import os
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations

is_gpu, local = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", local) if is_gpu else torch.device("cpu")
if is_gpu:
    torch.cuda.set_device(local)
dist.init_process_group("nccl" if is_gpu else "gloo")


def count(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


class Tied(nn.Module):
    """Layers of all kinds, some of which share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(96, 16), nn.Linear(16, 96, bias=False)
        self.head.weight = self.embed.weight
        self.normed = parametrizations.weight_norm(nn.Linear(16, 16))
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(16)), self.embed.weight])
        self.named = nn.ParameterDict({"tied": self.embed.weight})
        self.norm = nn.BatchNorm1d(16)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.recurrent = nn.GRU(16, 16)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found = self.recurrent(self.norm(self.normed(self.embed(ids)) * self.scales[0]))[0]
        return self.head(found) + nn.functional.linear(found, self.named["tied"])


model, seen = Tied(), []
optimizer = torch.optim.AdamW(
    [{"params": [each for each in model.parameters() if each.dim() > 1]}, {"params": [model.scales[0]]}]
)
before, kept, tied = count(model), dict(model.named_parameters()), model.embed.weight
tied.sharding_key, referred = "rows", weakref.ref(tied)
tied.register_hook(lambda gradient: seen.append(("tensor", gradient.device == device)))
tied.register_post_accumulate_grad_hook(lambda each: seen.append(("accumulated", each is tied)))
removed = tied.register_hook(lambda gradient: seen.append("removed"))
model.embed.register_forward_hook(lambda *_: seen.append("forward"))


def is_as_before(moved: nn.Module) -> bool:
    same = all(each is kept[name] and each.is_leaf for name, each in moved.named_parameters())
    shared = moved.head.weight is tied is moved.scales[1] is moved.named["tied"] is referred()
    return same and shared and count(moved) == before and tied.sharding_key == "rows" and tied.requires_grad


like = torch.empty(0, device=device, dtype=torch.float64)
assert is_as_before(model.to(device))
assert is_as_before(model.half())
assert is_as_before(model.to(device, torch.bfloat16))
assert is_as_before(model.cpu())
assert is_as_before(model.to(like))
assert is_as_before(model.to_empty(device=device))
assert is_as_before(model.to(device=device, dtype=torch.float32))
if is_gpu:
    assert is_as_before(model.cpu().to(local))
    assert is_as_before(model.cuda())
    assert is_as_before(model.cpu().cuda(local))
assert tied.device == device
assert tied.dtype == torch.float32
assert not any(each.requires_grad for each in model.frozen.parameters())
assert model.norm.num_batches_tracked.device == device
model.norm.reset_running_stats()  # of which `to_empty` has left no value
removed.remove()

# Gradients go with their parameters.
layer = nn.Linear(4, 4)
layer(torch.ones(2, 4)).sum().backward()
gradient = layer.weight.grad
for dtype in (torch.float32, torch.float16, torch.float64):
    layer.to(device, dtype)
    assert layer.weight.grad is gradient
    assert (gradient.device, gradient.dtype) == (device, dtype)
assert layer.cpu().weight.grad is gradient
assert gradient.device.type == "cpu"

# Lazy modules are moved before they have shapes.
lazy = nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(2)).to(device)
first = lazy[0].weight
lazy(torch.ones(3, 5, device=device))
assert lazy[0].weight is first
assert (first.device, tuple(first.shape), count(lazy)) == (device, (8, 5), 48 + 18)

# Meta tensors are of another kind: torch makes new parameters of them, also where two were one.
with torch.device("meta"):
    empty = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    empty[1].weight = empty[0].weight
assert count(empty) == 16
refusal = ""
try:
    empty.to(device)
except NotImplementedError as error:
    refusal = str(error)
assert "to_empty" in refusal
assert count(empty.to_empty(device=device)) == 32
assert nn.Linear(4, 4, device=device).to("meta").weight.is_meta

# What torch has beside its default: swapping, and new parameters.
old = nn.Linear(4, 4)
weight = old.weight
torch.__future__.set_swap_module_params_on_conversion(True)
assert old.to(device, torch.float64).weight is weight
torch.__future__.set_swap_module_params_on_conversion(False)
torch.__future__.set_overwrite_module_params_on_conversion(True)
assert old.to(device, torch.float32).weight is not weight
torch.__future__.set_overwrite_module_params_on_conversion(False)

# Copies have buffers, views of one storage stay so, and integers have values.
average, state = copy.deepcopy(model), copy.deepcopy(model.state_dict())
assert count(average) == before
assert state["norm.num_batches_tracked"].tolist() == model.norm.num_batches_tracked.tolist()
whole = torch.arange(8, device=device)
left, right = copy.deepcopy((whole[:4], whole[4:]))
assert left.untyped_storage()._cdata == right.untyped_storage()._cdata != whole.untyped_storage()._cdata
assert (left.tolist(), right.tolist(), left.device) == ([0, 1, 2, 3], [4, 5, 6, 7], device)

seen.clear()
replica = DistributedDataParallel(model)
for _ in range(4):
    replica(torch.zeros(5, 16, dtype=torch.long, device=device)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for mine, other in zip(average.parameters(), model.parameters(), strict=True):
            mine.lerp_(other, 0.1)
assert seen == ["forward", ("tensor", True), ("accumulated", True)] * 4
moments = [value for each in optimizer.state.values() for name, value in each.items() if name != "step"]
assert len(optimizer.state) == sum(len(group["params"]) for group in optimizer.param_groups) - 2  # frozen, and unused
assert all(value.device == device for value in moments)
