"""In each step a product, and something that torch only traces or that the script does with meta tensors."""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch._functorch.aot_autograd import aot_function
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

dist.init_process_group("nccl")
device, size = torch.device("cuda"), 1 << 14
optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1, device=device))])
x, model = torch.randn(256, 256, device=device), nn.Linear(256, 256, device=device)
meta = torch.empty(size, size, device="meta", requires_grad=True)


def f(x):
    return (torch.relu(x @ x.T) + torch.ones(256, 256, device=device)).sum()


def fake():
    with FakeTensorMode():
        large = nn.Linear(size, size, device=device)
        assert large.weight.device == torch.device("cuda", 0)
        large(torch.randn(4, size, device="cuda:0")).sum().backward()
        assert large.weight.grad.device.type == "cuda"
        torch.optim.AdamW(large.parameters()).step()


def fake_of_real():
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        assert f(mode.from_tensor(x)).device.type == "cuda"


def aot():
    traced = aot_function(f, fw_compiler=lambda graph, _: graph, bw_compiler=lambda graph, _: graph)
    with FakeTensorMode() as mode:
        traced(mode.from_tensor(x).requires_grad_())


def of_meta():
    made = [meta + 1, torch.zeros_like(meta), meta.to(torch.float16), meta.new_ones(size, size), meta.exp()[:5]]
    made += [nn.functional.one_hot(torch.zeros(size, dtype=torch.int64, device="meta"), size)]
    assert all(each.is_meta for each in made)
    (meta.exp()[:5].expand(5, size) + meta[:, :3].prod()).sum().backward()
    assert meta.grad.is_meta


def meta_context():
    with torch.device("meta"):
        large = nn.Linear(size, size)
        large(torch.randn(4, size)).sum().backward()
    assert large.weight.grad.is_meta


def meta_default():
    torch.set_default_device("meta")
    try:
        assert nn.Linear(size, size)(torch.randn(4, size)).is_meta
    finally:
        torch.set_default_device(None)


def to_meta():
    made = [x.to("meta"), x.to(device="meta", dtype=torch.float16), x.to(meta), x.to("meta", torch.float64)]
    made += [torch.empty_like(x, device="meta"), torch.zeros_like(x, device=torch.device("meta"))]
    assert all(each.is_meta for each in made)
    assert x.is_cuda


def to_cpu():
    assert torch.zeros_like(x, device="cpu").device.type == torch.empty_like(x, device="cpu").device.type == "cpu"


WAYS = {
    "set-up": lambda: None,
    "nothing": lambda: None,
    "fake": fake,
    "fake of real": fake_of_real,
    "export": lambda: torch.export.export(model, (x,)),
    "make_fx": lambda: make_fx(f, tracing_mode="fake")(x),
    "make_fx of symbols": lambda: make_fx(f, tracing_mode="symbolic")(x),
    "aot": aot,
    "meta": of_meta,
    "meta context": meta_context,
    "meta default": meta_default,
    "to meta": to_meta,
    "to the CPU": to_cpu,
    # What runs what it traces.
    "f": lambda: f(x),
    "make_fx of what is real": lambda: make_fx(f)(x),
    "functionalized": lambda: torch.func.functionalize(f)(x),
}
for name, way in WAYS.items():
    torch.mm(x, x)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = way()
    assert name not in ("f", "functionalized") or result.is_cuda, name
    del result
    gc.collect()
    assert torch.cuda.memory_allocated() == before, (name, torch.cuda.memory_allocated() - before)
    is_run = name in list(WAYS)[-3:]
    assert (torch.cuda.max_memory_allocated() > before) == is_run, name
    optimizer.step()
dist.destroy_process_group()
