"""Twenty modules such as recommenders and their neighbours have, with arguments to call them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

BATCH = 6


class Case(NamedTuple):
    """What makes a module, and what makes its arguments."""

    make: Callable[[], nn.Module]
    arguments: Callable[[], tuple[Any, ...]]


def floats(*shape: int, grad: bool = False) -> Tensor:
    return torch.randn(BATCH, *shape, requires_grad=grad)


def ids(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, (BATCH, *shape))


class Mlp(nn.Module):
    """A click-through model's tower, with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, label: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self.layers(dense).squeeze(1), label)


class Cnn(nn.Module):
    """Convolutions, batch normalization, pooling, a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        hidden = self.stem(image)
        hidden = functional.relu(self.block(hidden) + hidden)
        return functional.cross_entropy(self.head(functional.adaptive_avg_pool2d(hidden, 1).flatten(1)), label)


class Mixer(nn.Module):
    """An MLP-mixer's block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(12), nn.LayerNorm(12)
        self.tokens = nn.Sequential(nn.Linear(7, 14), nn.GELU(), nn.Linear(14, 7))
        self.channels = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 12))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(self.second(x))).square().mean()


class Cross(nn.Module):
    """DCN V2's cross layers of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(20, 4, bias=False) for _ in range(3))
        self.up = nn.ModuleList(nn.Linear(4, 20) for _ in range(3))

    def forward(self, first: Tensor) -> Tensor:
        x = first
        for down, up in zip(self.down, self.up, strict=True):
            x = first * up(down(x)) + x
        return x.sum()


class DeepFm(nn.Module):
    """Embeddings, factorization machine and a deep tower."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Embedding(50, 1), nn.Embedding(50, 8)
        self.tower = nn.Sequential(nn.Linear(4 * 8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))

    def forward(self, ids: Tensor, label: Tensor) -> Tensor:
        rows = self.deep(ids)
        pairs = (rows.sum(1).square() - rows.square().sum(1)).sum(1, keepdim=True) / 2
        logit = self.wide(ids).sum(1) + pairs + self.tower(rows.flatten(1))
        return functional.binary_cross_entropy(torch.sigmoid(logit).squeeze(1), label)


class Din(nn.Module):
    """Attention of a candidate over a user's history, DIN's."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(40, 6, padding_idx=0)
        self.score = nn.Sequential(nn.Linear(24, 8), nn.PReLU(), nn.Linear(8, 1))

    def forward(self, history: Tensor, item: Tensor) -> Tensor:
        past = self.items(history)
        now = self.items(item).unsqueeze(1).expand_as(past)
        scores = self.score(torch.cat([past, now, past - now, past * now], -1)).squeeze(-1)
        weights = scores.masked_fill(history == 0, -1e9).softmax(1)
        return (weights.unsqueeze(1) @ past).squeeze(1).sum()


class Dot(nn.Module):
    """DLRM's pairwise products."""

    def forward(self, features: Tensor) -> Tensor:
        products = torch.bmm(features, features.transpose(1, 2))
        row, column = torch.tril_indices(5, 5, -1)
        return torch.cat([features[:, 0], products[:, row, column]], 1).sum()


class Attention(nn.Module):
    """Causal self-attention, fused."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).view(BATCH, -1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2)).sum()


class Transformer(nn.Module):
    """An encoder with dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean()


class Heads(nn.Module):
    """Several tasks over one trunk: MMoE's experts and gates; returns a loss for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(10, 8) for _ in range(3))
        self.gates = nn.ModuleList(nn.Linear(10, 3) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(8, 1) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        experts = torch.stack([functional.silu(expert(x)) for expert in self.experts], 1)
        return tuple(
            head((gate(x).softmax(1).unsqueeze(2) * experts).sum(1)).square().mean()
            for gate, head in zip(self.gates, self.heads, strict=True)
        )


class Checkpointed(nn.Module):
    """A block that is computed anew in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(9, 18), nn.Tanh(), nn.Linear(18, 9))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False).sum()


class Autocast(nn.Module):
    """Products in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.LayerNorm(24), nn.Linear(24, 2))

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.layers(x).float().square().mean()


class Bag(nn.Module):
    """Pooled embeddings, weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(30, 8, mode="sum")

    def forward(self, ids: Tensor, weights: Tensor) -> Tensor:
        return self.bag(ids, per_sample_weights=weights).sum()


class Tied(nn.Module):
    """One weight used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.out = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.out.weight = self.items.weight

    def forward(self, ids: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(self.out(self.items(ids)), label)


class Conv1d(nn.Module):
    """Convolutions over a sequence, group normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(4, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool1d(2), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        return functional.huber_loss(self.layers(x).mean(1), x[:, 0, 0])


def half(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().to(torch.bfloat16)


ZOO = {
    "mlp": Case(Mlp, lambda: (floats(13), torch.rand(BATCH))),
    "cnn": Case(Cnn, lambda: (floats(3, 8, 8), ids(5))),
    "mixer": Case(Mixer, lambda: (floats(7, 12),)),
    "cross": Case(Cross, lambda: (floats(20, grad=True),)),
    "deepfm": Case(DeepFm, lambda: (ids(50, 4), torch.rand(BATCH))),
    "din": Case(Din, lambda: (ids(40, 9), ids(40))),
    "dot": Case(Dot, lambda: (floats(5, 8, grad=True),)),
    "attention": Case(Attention, lambda: (floats(10, 16, grad=True),)),
    "transformer": Case(Transformer, lambda: (floats(7, 16),)),
    "heads": Case(Heads, lambda: (floats(10),)),
    "checkpoint": Case(Checkpointed, lambda: (floats(9, grad=True),)),
    "autocast": Case(Autocast, lambda: (floats(12),)),
    "bag": Case(Bag, lambda: (ids(30, 4), torch.rand(BATCH, 4, requires_grad=True))),
    "tied": Case(Tied, lambda: (ids(20), ids(20))),
    "conv1d": Case(Conv1d, lambda: (floats(4, 12),)),
    "bilinear": Case(lambda: nn.Bilinear(5, 6, 4), lambda: (floats(5), floats(6))),
    "half": Case(half(lambda: nn.Sequential(nn.Linear(8, 8), nn.Sigmoid())), lambda: (floats(8).bfloat16(),)),
    "multihead": Case(
        lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda: (floats(5, 8), floats(5, 8), floats(5, 8))
    ),
    "gru": Case(lambda: nn.GRUCell(6, 5), lambda: (floats(6), floats(5))),
    "rms": Case(lambda: nn.Sequential(nn.RMSNorm(8), nn.Linear(8, 3), nn.LogSoftmax(1)), lambda: (floats(8),)),
}
