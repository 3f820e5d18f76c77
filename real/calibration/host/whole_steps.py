"""Whole training steps, as small as the pieces, on which predictions with fitted prices are checked."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (as scripts call it)

from real.calibration.host.pieces import BATCH, WIDTH, Run


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.given, self.made = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.given(self.first(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.made(mixed.transpose(1, 2).reshape(batch, length, width))
        output: Tensor = x + self.wide(self.second(x))
        return output


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Run:
    def run() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return run


def transformer(device: torch.device) -> Run:
    """Return a step of two blocks of a transformer, by autocast and AdamW."""
    tokens, table = torch.randint(0, 100, (4, 16), device=device), nn.Embedding(100, WIDTH)
    model = nn.Sequential(table, _Block(), _Block(), nn.Linear(WIDTH, 100)).to(device)

    def loss() -> Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return F.cross_entropy(model(tokens).float().view(-1, 100), tokens.view(-1))

    return _step(model, torch.optim.AdamW(model.parameters()), loss)


def convolutional(device: torch.device) -> Run:
    """Return a step of convolutions, batch normalizations and SGD with momentum."""
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
        looked_up = [table(of) for table, of in zip(self.tables, ids.values(), strict=True)]
        together = torch.stack([bottom, *looked_up], 1)
        crossed = torch.bmm(together, together.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        output: Tensor = self.top(torch.cat([bottom, crossed], 1))
        return output.squeeze(1)


def recommender(device: torch.device) -> Run:
    """Return a step of a recommender with torch's own embeddings, and Adagrad."""
    dense, clicks = torch.rand(BATCH, 13, device=device), torch.ones(BATCH, device=device)
    ids = {f"table {index}": torch.randint(0, 100, (BATCH,), device=device) for index in range(8)}
    model = _Recommender().to(device)
    optimizer = torch.optim.Adagrad(model.parameters())
    return _step(model, optimizer, lambda: F.binary_cross_entropy_with_logits(model(dense, ids), clicks))
