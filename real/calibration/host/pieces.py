"""Pieces of eager training whose bottleneck is the host.

Tensors are so small that a GPU never delays its host, and no piece launches more kernels than a stream's queue holds
(1,024).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as scripts call it)
from torch.utils._pytree import tree_flatten, tree_unflatten

Run = Callable[[], object]

BATCH, WIDTH = 32, 64
_LAYERS = 8


def elementwise(device: torch.device) -> Run:
    """Return operators of many kinds without gradients, each on a small tensor."""
    x, y = torch.rand(BATCH, WIDTH, device=device), torch.rand(BATCH, WIDTH, device=device)
    places = torch.arange(8, device=device)

    def run() -> None:
        for _ in range(6):
            a = x + y
            b = torch.exp(a * 0.5)
            c = torch.relu(b - y).clamp_(0.0, 3.0)
            d = torch.cat([a, c])
            e = torch.maximum(d, d.neg())
            e.index_select(0, places).sum().sqrt()
            e.to(torch.bfloat16).mul_(2).add_(1)
            torch.softmax(c, -1).sigmoid().mean(0)

    return run


def views(device: torch.device) -> Run:
    """Return views of one tensor, which launch nothing."""
    x = torch.rand(4, 8, 16, device=device)

    def run() -> None:
        for _ in range(20):
            a = x.view(32, 16).t()
            b = a[:, 1:9].unsqueeze(0).expand(4, -1, -1)
            c = x.transpose(1, 2).select(0, 1).detach()
            b.permute(2, 0, 1)
            c.narrow(0, 2, 4).unbind(0)
        x + 1

    return run


def products(device: torch.device) -> Run:
    """Return products of matrices without gradients."""
    x, w, bias = (torch.rand(*shape, device=device) for shape in ((WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,)))
    batched, half = torch.rand(8, 16, 16, device=device), torch.rand(WIDTH, WIDTH, device=device).bfloat16()

    def run() -> None:
        for _ in range(12):
            torch.mm(x, w)
            torch.addmm(bias, x, w)
            torch.bmm(batched, batched)
            torch.mm(half, half)
            torch.matmul(x, w)

    return run


def convolutions(device: torch.device) -> Run:
    """Return convolutions without gradients."""
    image = torch.rand(2, 16, 16, 16, device=device).bfloat16()
    kernels = [torch.rand(16, 16, size, size, device=device).bfloat16() for size in (1, 3)]

    def run() -> None:
        for _ in range(10):
            for kernel in kernels:
                torch.conv2d(image, kernel, padding=kernel.shape[-1] // 2)

    return run


class _Nested(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.inner: nn.Module = _Nested(depth - 1) if depth else nn.Identity()
        self.scale = 1 / (depth + 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self._scale(self.inner(x))
        return output

    def _scale(self, x: Tensor) -> Tensor:
        return x if self._is_large() else x.detach()

    def _is_large(self) -> bool:
        return self.scale < 2


def modules(device: torch.device) -> Run:
    """Return modules that call modules, and functions of the script, with little computation."""
    x, model = torch.rand(BATCH, WIDTH, device=device), nn.Sequential(*(_Nested(6) for _ in range(12)))
    return lambda: model(x) + 1


class _Ragged:
    """A batch of rows of several features, concatenated, as libraries for recommenders keep them."""

    def __init__(self, keys: list[str], values: Tensor, lengths: list[int]) -> None:
        if len(keys) != len(lengths):
            raise ValueError(f"{len(keys)} keys, {len(lengths)} lengths: expected a length for each key")
        self._keys, self._values, self._lengths = keys, values, lengths
        self._offsets: list[int] | None = None
        self._places: dict[str, int] | None = None

    @property
    def keys(self) -> list[str]:
        return self._keys

    @property
    def device(self) -> torch.device:
        return self._values.device

    def offsets(self) -> list[int]:
        if self._offsets is None:
            self._offsets = [0, *accumulate(self._lengths)]
        return self._offsets

    def place(self, key: str) -> int:
        if self._places is None:
            self._places = {each: index for index, each in enumerate(self._keys)}
        return self._places[key]

    def part(self, key: str) -> Tensor:
        index, offsets = self.place(key), self.offsets()
        return self._values.narrow(0, offsets[index], offsets[index + 1] - offsets[index])

    def split(self, sizes: list[int]) -> list[_Ragged]:
        if not isinstance(self._values, Tensor):
            return [self]
        parts, offsets, first = [], self.offsets(), 0
        for size in sizes:
            begun, ended = offsets[first], offsets[first + size]
            keys, lengths = self._keys[first : first + size], self._lengths[first : first + size]
            parts.append(_Ragged(keys, self._values[begun:ended], lengths))
            first += size
        return parts


def bookkeeping(device: torch.device) -> Run:
    """Return Python as libraries have it around operators: classes, properties, ranges of a profiler, views."""
    values, keys = torch.rand(128, device=device), [f"feature {index}" for index in range(16)]

    def run() -> None:
        for _ in range(4):
            with torch.profiler.record_function("features"):
                rows = _Ragged(keys, values, [8] * 16)
                parts = {key: part.part(key) for part in rows.split([4] * 4) for key in part.keys}
                flat, spec = tree_flatten({"found": parts, "device": rows.device, "lengths": (1, 2)})
                tree_unflatten(flat, spec)
        values + 1

    return run


def _mlp(device: torch.device, layers: int = _LAYERS) -> nn.Sequential:
    each = ((nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(layers))
    return nn.Sequential(*chain.from_iterable(each)).to(device)


def forward(device: torch.device) -> Run:
    """Return the forward pass of a multi-layer perceptron that saves tensors for its backward pass."""
    x, model = torch.rand(BATCH, WIDTH, device=device), _mlp(device, 2 * _LAYERS)
    return lambda: model(x)


def perceptron(device: torch.device) -> Run:
    """Return forward and backward passes of a multi-layer perceptron."""
    x, model = torch.rand(BATCH, WIDTH, device=device), _mlp(device)

    def run() -> None:
        model.zero_grad()
        F.mse_loss(model(x), x).backward()

    return run


def accumulation(device: torch.device) -> Run:
    """Return two backward passes whose gradients accumulate, under autocast."""
    x, model = torch.rand(BATCH, WIDTH, device=device), _mlp(device, _LAYERS // 2)

    def run() -> None:
        model.zero_grad()
        for _ in range(2):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.mse_loss(model(x).float(), x)
            (loss / 2).backward()

    return run


def pointwise(device: torch.device) -> Run:
    """Return a long chain of small operators with its backward pass, for one parameter."""
    x = torch.rand(BATCH, WIDTH, device=device, requires_grad=True)

    def run() -> None:
        x.grad, y = None, x
        for _ in range(16):
            y = torch.tanh(y * 1.5 + 0.1)
        y.sum().backward()

    return run


def passes(device: torch.device) -> Run:
    """Return nearly empty backward passes."""
    w = torch.rand(WIDTH, device=device, requires_grad=True)

    def run() -> None:
        for _ in range(6):
            w.grad = None
            (w * 2).sum().backward()

    return run


def heads(device: torch.device) -> Run:
    """Return views, copies and attention as heads need them, with the backward pass."""
    x = torch.rand(4, 16, 3 * WIDTH, device=device, requires_grad=True)

    def run() -> None:
        x.grad, y = None, x
        for _ in range(4):
            query, key, value = (each.view(4, 16, 4, 16).transpose(1, 2) for each in y.split(WIDTH, dim=2))
            weights = torch.softmax(query @ key.transpose(-2, -1) * 0.25, -1)
            out = (weights @ value).transpose(1, 2).contiguous().view(4, 16, WIDTH)
            y = torch.cat([out, y[:, :, WIDTH:]], 2)
        y.mean().backward()

    return run


def normalized_layers(device: torch.device) -> Run:
    """Return layers that Python wraps, normalizations, dropout and a loss, with the backward pass."""
    x, aims = torch.rand(BATCH, WIDTH, device=device), torch.arange(BATCH, device=device)
    layers = (m for _ in range(5) for m in (nn.LayerNorm(WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Softplus()))
    model = nn.Sequential(*layers).to(device)

    def run() -> None:
        model.zero_grad()
        F.cross_entropy(model(x), aims).backward()

    return run


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return gradient * 2 + x * 0


def functions(device: torch.device) -> Run:
    """Return functions with a backward pass in Python, and hooks of modules and of gradients."""
    x, model = torch.rand(BATCH, WIDTH, device=device), _mlp(device, 3)
    for layer in model:
        layer.register_forward_hook(lambda _module, _given, output: output * 1.0)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient * 0.5)

    def run() -> None:
        model.zero_grad()
        y = model(x)
        for _ in range(8):
            y = _Doubled.apply(y)  # type: ignore[no-untyped-call]
        y.sum().backward()

    return run


def _with_gradients(device: torch.device) -> list[nn.Parameter]:
    parameters = [nn.Parameter(torch.rand(WIDTH, 8, device=device)) for _ in range(32)]
    for each in parameters:
        each.grad = torch.rand_like(each)
    return parameters


def adamw(device: torch.device) -> Run:
    """Return a step of AdamW over all parameters at once, and the norm of the gradients."""
    parameters = _with_gradients(device)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def run() -> None:
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return run


def sgd_by_parameter(device: torch.device) -> Run:
    """Return SGD with momentum, one parameter after the other."""
    return torch.optim.SGD(_with_gradients(device), lr=1e-4, momentum=0.9, foreach=False).step


def adam_by_parameter(device: torch.device) -> Run:
    """Return Adam, one parameter after the other."""
    return torch.optim.Adam(_with_gradients(device), lr=1e-4, foreach=False).step


def _join(device: torch.device) -> None:
    if not dist.is_initialized():
        backend, store = "nccl" if device.type == "cuda" else "gloo", dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)


def collectives(device: torch.device) -> Run:
    """Return collectives of a group of one rank, awaited at once or later."""
    _join(device)
    x, y = torch.rand(BATCH, WIDTH, device=device), torch.rand(BATCH, WIDTH, device=device)

    def run() -> None:
        for _ in range(3):
            dist.all_reduce(x, dist.ReduceOp.MAX)
            works = [dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True), dist.broadcast(y, 0, async_op=True)]
            works.append(dist.reduce(y, 0, async_op=True))
            for work in works:
                work.wait()
        x + y

    return run


def data_parallel(device: torch.device) -> Run:
    """Return a perceptron under DistributedDataParallel, in a group of one rank."""
    _join(device)
    x, model = torch.rand(BATCH, WIDTH, device=device), nn.parallel.DistributedDataParallel(_mlp(device))

    def run() -> None:
        model.zero_grad()
        F.mse_loss(model(x), x).backward()

    return run
