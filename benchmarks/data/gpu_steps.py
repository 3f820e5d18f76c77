"""Training steps on one GPU in plain torch, to which nothing of the model was fitted.

torchrun --nproc-per-node 1 benchmarks/data/gpu_steps.py NAME     # on a GPU, until it is stopped: see gpu_campaign
python -m sim --profile hgx_h200 --hosts 1 --gpus-per-host 1 --steps 4 benchmarks/data/gpu_steps.py NAME
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

Step = Callable[[int], None]
DEVICE = torch.device("cuda", 0)
TABLES, ROWS, COLUMNS = 26, 10_000, 128


def adam(model: nn.Module, *, fused: bool = True) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused, foreach=not fused)


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[int], Tensor], *, amp: bool) -> Step:
    def step(i: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=amp):
            value = loss(i)
        value.backward()
        optimizer.step()

    return step


# Linear layers


def layers(width: int, depth: int, batch: int, *, fused: bool = True, amp: bool = False) -> Step:
    model: Any = nn.Sequential(*[each for _ in range(depth) for each in (nn.Linear(width, width), nn.ReLU())]).to(
        DEVICE
    )
    model = DDP(model, device_ids=[0])
    x = torch.randn(batch, width, device=DEVICE)
    return plain(model, adam(model, fused=fused), lambda _: model(x).float().square().mean(), amp=amp)


# Recommenders


class Dlrm(nn.Module):
    """DLRM of torch's own embedding bags."""

    def __init__(self, top: tuple[int, ...]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, COLUMNS, mode="sum") for _ in range(TABLES))
        self.bottom = mlp(13, 512, 256, COLUMNS)
        self.top = mlp((TABLES + 1) * TABLES // 2 + COLUMNS, *top)
        i, j = torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1)
        self.register_buffer("i", i)
        self.register_buffer("j", j)

    def forward(self, dense: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
        x = self.bottom(dense)
        z = torch.stack([x] + [table(ids[t], offsets) for t, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(z, z.transpose(1, 2))
        return self.top(torch.cat([x, products[:, self.i, self.j]], dim=1))[:, 0]


def mlp(*sizes: int) -> nn.Sequential:
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    return nn.Sequential(*[each for a, b in pairs for each in (nn.Linear(a, b), nn.ReLU())][:-1])


def dlrm() -> Step:
    batch = 8192
    model = Dlrm((1024, 1024, 512, 256, 1)).to(DEVICE)
    tables = torch.optim.SGD(model.tables.parameters(), lr=0.01)
    rest = torch.optim.SGD([*model.bottom.parameters(), *model.top.parameters()], lr=0.01)
    dense = torch.rand(batch, 13, device=DEVICE)
    ids = [torch.randint(ROWS, (TABLES, batch), device=DEVICE) for _ in range(2)]
    offsets = torch.arange(batch, device=DEVICE)
    labels = torch.randint(2, (batch,), device=DEVICE).float()

    def step(i: int) -> None:
        rest.zero_grad(set_to_none=True)
        tables.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(model(dense, ids[i % 2], offsets), labels)
        loss.backward()
        tables.step()
        rest.step()

    return step


def dcn() -> Step:
    batch, width = 8192, 3456
    cross = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).to(DEVICE)
    top = mlp(width, 1024, 512, 256, 1).to(DEVICE)
    model = nn.ModuleList([cross, top])
    x0 = torch.randn(batch, width, device=DEVICE)
    labels = torch.randint(2, (batch,), device=DEVICE).float()

    def loss(_: int) -> Tensor:
        x = x0
        for each in cross:
            x = x0 * each(x) + x
        return F.binary_cross_entropy_with_logits(top(x)[:, 0].float(), labels)

    return plain(model, adam(model), loss, amp=True)


def two_towers() -> Step:
    batch, rows = 4096, 1_000_000
    users, items = (nn.EmbeddingBag(rows, 128, mode="mean", sparse=False).to(DEVICE) for _ in range(2))
    left, right = mlp(128, 512, 256).to(DEVICE), mlp(128, 512, 256).to(DEVICE)
    model = nn.ModuleList([users, items, left, right])
    ids = torch.randint(rows, (batch, 50), device=DEVICE)

    def loss(_: int) -> Tensor:
        u, v = F.normalize(left(users(ids)), dim=1), F.normalize(right(items(ids[:, :1])), dim=1)
        return F.cross_entropy(u @ v.T / 0.05, torch.arange(batch, device=DEVICE))

    return plain(model, torch.optim.Adagrad(model.parameters(), lr=0.01), loss, amp=False)


# Transformers


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.causal, self.drop = heads, causal, nn.Dropout(dropout)
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.behind(x)))))


class Transformer(nn.Module):
    def __init__(
        self, width: int, heads: int, depth: int, words: int, length: int, *, causal: bool, dropout: float
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, heads, causal, dropout) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, words: Tensor, targets: Tensor) -> Tensor:
        x = self.words(words) + self.places
        for each in self.blocks:
            x = each(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def transformer(
    width: int,
    heads: int,
    depth: int,
    batch: int,
    length: int,
    words: int = 50304,
    how: str = "ddp",
    *,
    causal: bool = True,
    dropout: float = 0.0,
    amp: bool = True,
) -> Step:
    model: Any = Transformer(width, heads, depth, words, length, causal=causal, dropout=dropout).to(DEVICE)
    if how == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        amp = False
    elif how == "compiled":
        model = DDP(torch.compile(model), device_ids=[0])
    else:
        model = DDP(model, device_ids=[0])
    data = [torch.randint(words, (batch, length + 1), device=DEVICE) for _ in range(2)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return plain(model, optimizer, lambda i: model(data[i % 2][:, :-1], data[i % 2][:, 1:]), amp=amp)


# Images


class Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
            *(nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.down = None
        if stride != 1 or inner != out:
            self.down = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + (x if self.down is None else self.down(x)), inplace=True)


def resnet50(batch: int) -> Step:
    torch.backends.cudnn.benchmark = True
    parts: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inner = 64
    for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(depth):
            parts.append(Bottleneck(inner, width, stride if i == 0 else 1))
            inner = 4 * width
    model: Any = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000)).to(DEVICE)
    x = torch.randn(batch, 3, 224, 224, device=DEVICE)
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    model, targets = DDP(model, device_ids=[0]), torch.randint(1000, (batch,), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return plain(model, optimizer, lambda _: F.cross_entropy(model(x), targets), amp=True)


STEPS: dict[str, Callable[[], Step]] = {
    "layers_256": lambda: layers(256, 16, 256, fused=False),
    "layers_2048_bf16": lambda: layers(2048, 24, 4096, amp=True),
    "dlrm": dlrm,
    "dcn": dcn,
    "two_towers": two_towers,
    "gpt_medium": lambda: transformer(1024, 16, 24, 8, 1024),
    "gpt_compiled": lambda: transformer(768, 12, 12, 16, 1024, how="compiled"),
    "gpt_fsdp2": lambda: transformer(1024, 16, 12, 8, 1024, how="fsdp2"),
    "bert": lambda: transformer(768, 12, 12, 64, 128, 30528, causal=False, dropout=0.1),
    "resnet50_bf16": lambda: resnet50(256),
}


if __name__ == "__main__":
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    train = STEPS[sys.argv[1]]()
    for number in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1000):
        train(number)
    dist.destroy_process_group()
