"""Pieces of eager training of which a host is the bottleneck: a script of its own, run as users' scripts are.

    snippets.py count DEVICE                     # on a simulated GPU: what each does is counted
    snippets.py time DEVICE SECONDS OUT.json     # on a real one: what the host takes for each

Tensors are so small that a GPU never holds its host up, and no snippet launches as many kernels as a stream's queue
has places (1,024).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import accumulate, chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as scripts call it)
from torch.utils._pytree import tree_flatten, tree_unflatten

import twinstep

Run = Callable[[], object]
# What predictions with the fitted prices are checked on: whole training steps, which no price is fitted to.
HELD_OUT = ("transformer step", "convolutional step", "recommender step")

_BATCH, _WIDTH = 32, 64
_LAYERS = 8
# What the first runs take is left out: libraries load their kernels, DistributedDataParallel makes its buckets anew.
_WARM_UP = 3
_LEAST_ROUNDS, _MOST_ROUNDS = 5, 1000


def elementwise(device: torch.device) -> Run:
    """Operators of many kinds without gradients, each on a small tensor."""
    x, y = torch.rand(_BATCH, _WIDTH, device=device), torch.rand(_BATCH, _WIDTH, device=device)
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
    """Views of one tensor, which launch nothing."""
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
    """Products of matrices without gradients."""
    x, w, bias = (torch.rand(*shape, device=device) for shape in ((_WIDTH, _WIDTH), (_WIDTH, _WIDTH), (_WIDTH,)))
    batched, half = torch.rand(8, 16, 16, device=device), torch.rand(_WIDTH, _WIDTH, device=device).bfloat16()

    def run() -> None:
        for _ in range(12):
            torch.mm(x, w)
            torch.addmm(bias, x, w)
            torch.bmm(batched, batched)
            torch.mm(half, half)
            torch.matmul(x, w)

    return run


def convolutions(device: torch.device) -> Run:
    """Convolutions without gradients."""
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
        made: Tensor = self._scaled(self.inner(x))
        return made

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self._is_large() else x.detach()

    def _is_large(self) -> bool:
        return self.scale < 2


def modules(device: torch.device) -> Run:
    """Modules that call modules, and functions of the script, with little to compute."""
    x, model = torch.rand(_BATCH, _WIDTH, device=device), nn.Sequential(*(_Nested(6) for _ in range(12)))
    return lambda: model(x) + 1


class _Ragged:
    """Rows of several features one after the other, as libraries for recommenders keep them."""

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
    """Python of the kind that libraries have around operators: classes, properties, ranges of a profiler, views."""
    values, keys = torch.rand(128, device=device), [f"feature {index}" for index in range(16)]

    def run() -> None:
        for _ in range(4):
            with torch.profiler.record_function("features"):
                rows = _Ragged(keys, values, [8] * 16)
                found = {key: part.part(key) for part in rows.split([4] * 4) for key in part.keys}
                flat, spec = tree_flatten({"found": found, "device": rows.device, "lengths": (1, 2)})
                tree_unflatten(flat, spec)
        values + 1

    return run


def _mlp(device: torch.device, layers: int = _LAYERS) -> nn.Sequential:
    each = ((nn.Linear(_WIDTH, _WIDTH), nn.ReLU()) for _ in range(layers))
    return nn.Sequential(*chain.from_iterable(each)).to(device)


def forward(device: torch.device) -> Run:
    """The forward pass of a multi-layer perceptron that keeps what its backward pass needs."""
    x, model = torch.rand(_BATCH, _WIDTH, device=device), _mlp(device, 2 * _LAYERS)
    return lambda: model(x)


def perceptron(device: torch.device) -> Run:
    """Forward and backward passes of a multi-layer perceptron."""
    x, model = torch.rand(_BATCH, _WIDTH, device=device), _mlp(device)

    def run() -> None:
        model.zero_grad()
        F.mse_loss(model(x), x).backward()

    return run


def accumulation(device: torch.device) -> Run:
    """Two backward passes whose gradients are added up, in a smaller dtype by autocast."""
    x, model = torch.rand(_BATCH, _WIDTH, device=device), _mlp(device, _LAYERS // 2)

    def run() -> None:
        model.zero_grad()
        for _ in range(2):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.mse_loss(model(x).float(), x)
            (loss / 2).backward()

    return run


def pointwise(device: torch.device) -> Run:
    """A long chain of small operators with its backward pass, for one parameter."""
    x = torch.rand(_BATCH, _WIDTH, device=device, requires_grad=True)

    def run() -> None:
        x.grad, y = None, x
        for _ in range(16):
            y = torch.tanh(y * 1.5 + 0.1)
        y.sum().backward()

    return run


def passes(device: torch.device) -> Run:
    """Backward passes of next to nothing."""
    w = torch.rand(_WIDTH, device=device, requires_grad=True)

    def run() -> None:
        for _ in range(6):
            w.grad = None
            (w * 2).sum().backward()

    return run


def heads(device: torch.device) -> Run:
    """Views, copies and attention as heads need them, with the backward pass."""
    x = torch.rand(4, 16, 3 * _WIDTH, device=device, requires_grad=True)

    def run() -> None:
        x.grad, y = None, x
        for _ in range(4):
            query, key, value = (each.view(4, 16, 4, 16).transpose(1, 2) for each in y.split(_WIDTH, dim=2))
            weights = torch.softmax(query @ key.transpose(-2, -1) * 0.25, -1)
            out = (weights @ value).transpose(1, 2).contiguous().view(4, 16, _WIDTH)
            y = torch.cat([out, y[:, :, _WIDTH:]], 2)
        y.mean().backward()

    return run


def normalized(device: torch.device) -> Run:
    """Layers that Python wraps, normalizations, dropout and a loss, with the backward pass."""
    x, aims = torch.rand(_BATCH, _WIDTH, device=device), torch.arange(_BATCH, device=device)
    layers = (m for _ in range(5) for m in (nn.LayerNorm(_WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Softplus()))
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
    """Functions with a backward pass in Python, and hooks of modules and of gradients."""
    x, model = torch.rand(_BATCH, _WIDTH, device=device), _mlp(device, 3)
    for layer in model:
        layer.register_forward_hook(lambda _module, _given, made: made * 1.0)
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
    parameters = [nn.Parameter(torch.rand(_WIDTH, 8, device=device)) for _ in range(32)]
    for each in parameters:
        each.grad = torch.rand_like(each)
    return parameters


def adamw(device: torch.device) -> Run:
    """AdamW as a step makes it, of all parameters at once, and the norm of the gradients."""
    parameters = _with_gradients(device)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)

    def run() -> None:
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return run


def sgd_by_parameter(device: torch.device) -> Run:
    """SGD with momentum, one parameter after the other."""
    return torch.optim.SGD(_with_gradients(device), lr=1e-4, momentum=0.9, foreach=False).step


def adam_by_parameter(device: torch.device) -> Run:
    """Adam, one parameter after the other."""
    return torch.optim.Adam(_with_gradients(device), lr=1e-4, foreach=False).step


def _join(device: torch.device) -> None:
    if not dist.is_initialized():
        backend, store = "nccl" if device.type == "cuda" else "gloo", dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)


def collectives(device: torch.device) -> Run:
    """Collectives of a group of one rank, awaited at once or later."""
    _join(device)
    x, y = torch.rand(_BATCH, _WIDTH, device=device), torch.rand(_BATCH, _WIDTH, device=device)

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
    """A perceptron under DistributedDataParallel, in a group of one rank."""
    _join(device)
    x, model = torch.rand(_BATCH, _WIDTH, device=device), nn.parallel.DistributedDataParallel(_mlp(device))

    def run() -> None:
        model.zero_grad()
        F.mse_loss(model(x), x).backward()

    return run


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.given, self.made = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.wide = nn.Sequential(nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.given(self.first(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.made(mixed.transpose(1, 2).reshape(batch, length, width))
        made: Tensor = x + self.wide(self.second(x))
        return made


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Run:
    def run() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return run


def transformer(device: torch.device) -> Run:
    """A step of two blocks of a transformer, by autocast and AdamW."""
    tokens, table = torch.randint(0, 100, (4, 16), device=device), nn.Embedding(100, _WIDTH)
    model = nn.Sequential(table, _Block(), _Block(), nn.Linear(_WIDTH, 100)).to(device)

    def loss() -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return F.cross_entropy(model(tokens).float().view(-1, 100), tokens.view(-1))

    return _step(model, torch.optim.AdamW(model.parameters()), loss)


def convolutional(device: torch.device) -> Run:
    """A step of convolutions, batch normalizations and SGD with momentum."""
    image, aims = torch.rand(2, 3, 16, 16, device=device), torch.arange(2, device=device)
    widths = ((3, 16), (16, 16), (16, 32), (32, 32))
    layers = (m for a, b in widths for m in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()))
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return _step(model, optimizer, lambda: F.cross_entropy(model(image), aims))


class _Recommender(nn.Module):
    pairs: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(100, 16) for _ in range(8))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(16 + 36, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("pairs", torch.triu_indices(9, 9, 1), persistent=False)

    def forward(self, dense: Tensor, ids: dict[str, Tensor]) -> Tensor:
        bottom = self.bottom(dense)
        found = [table(of) for table, of in zip(self.tables, ids.values(), strict=True)]
        together = torch.stack([bottom, *found], 1)
        crossed = torch.bmm(together, together.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        made: Tensor = self.top(torch.cat([bottom, crossed], 1))
        return made.squeeze(1)


def recommender(device: torch.device) -> Run:
    """A step of a recommender of tables by torch, with Adagrad."""
    dense, clicks = torch.rand(_BATCH, 13, device=device), torch.ones(_BATCH, device=device)
    ids = {f"table {index}": torch.randint(0, 100, (_BATCH,), device=device) for index in range(8)}
    model = _Recommender().to(device)
    optimizer = torch.optim.Adagrad(model.parameters())
    return _step(model, optimizer, lambda: F.binary_cross_entropy_with_logits(model(dense, ids), clicks))


SNIPPETS: dict[str, Callable[[torch.device], Run]] = {
    "operators": elementwise,
    "views": views,
    "products": products,
    "convolutions": convolutions,
    "modules": modules,
    "bookkeeping": bookkeeping,
    "forward": forward,
    "perceptron": perceptron,
    "accumulation": accumulation,
    "pointwise": pointwise,
    "passes": passes,
    "heads": heads,
    "normalized": normalized,
    "functions and hooks": functions,
    "AdamW": adamw,
    "SGD by parameter": sgd_by_parameter,
    "Adam by parameter": adam_by_parameter,
    "collectives": collectives,
    "data parallel": data_parallel,
    "transformer step": transformer,
    "convolutional step": convolutional,
    "recommender step": recommender,
}


def made(device: torch.device) -> dict[str, Run]:
    """Return the snippets by name, warmed up; those that this machine cannot run are said on stderr and left out."""
    found: dict[str, Run] = {}
    for name, make in SNIPPETS.items():
        try:
            run = make(device)
            for _ in range(_WARM_UP):
                run()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}", file=sys.stderr)
        else:
            found[name] = run
    return found


def count(runs: dict[str, Run]) -> None:
    """Mark two steps for each snippet, which run it once, and twice; none of one that is left out."""
    twinstep.step()
    for name in SNIPPETS:
        for often in (1, 2) if name in runs else (0, 0):
            for _ in range(often):
                runs[name]()
            twinstep.step()


def timed(runs: dict[str, Run], device: torch.device, seconds: float) -> dict[str, list[int]]:
    """Return what the host took for each, in ns, round after round: so each finds caches as a program's code does."""
    wait: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    found: dict[str, list[int]] = {name: [] for name in runs}
    until = time.monotonic() + seconds
    for index in range(_MOST_ROUNDS):
        if index > _WARM_UP + _LEAST_ROUNDS and time.monotonic() > until:
            break
        for name, run in runs.items():
            wait()
            begun_ns = time.perf_counter_ns()
            run()
            taken_ns = time.perf_counter_ns() - begun_ns
            if index >= _WARM_UP:
                found[name].append(taken_ns)
    wait()
    return found


def main() -> None:
    """Do what the command says."""
    mode, device = sys.argv[1], torch.device(sys.argv[2])
    torch.manual_seed(0)
    runs = made(device)
    if mode == "count":
        count(runs)
    else:
        found = timed(runs, device, float(sys.argv[3]))
        with open(sys.argv[4], "w", encoding="utf-8") as file:
            json.dump(found, file)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
