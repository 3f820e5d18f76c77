"""A dense part that does next to nothing: with it a scenario simulates a script's tables alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class TablesAlone(nn.Module):
    """The mean of all embeddings, pooled or not, as the loss."""

    def __init__(self, dense_features: int, _dims: Mapping[str, int], **_options: Any) -> None:
        super().__init__()
        self.scale = nn.Linear(dense_features, 1)  # DistributedDataParallel and optimizers need a parameter

    def forward(self, dense: Tensor, embeddings: Mapping[str, Tensor], _labels: Tensor) -> Tensor:
        rows = torch.cat([each.flatten(1) for each in embeddings.values()], 1)
        loss: Tensor = self.scale(dense).mean() + rows.mean()
        return loss
