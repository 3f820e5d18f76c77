"""Random numbers that torch draws by rejection: a single draw on a simulated GPU, which cannot test for rejection."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scenarios.workloads.script.gpu.known_values import Shadows


def draw_at_once(shadows: Shadows) -> None:
    """Make `nn.init.trunc_normal_` draw once; torch 2.13 redraws in a loop while a number lies outside."""
    if shadows.has_all:
        return
    module: Any = torch.nn.init
    usual = module._no_grad_trunc_normal_

    def draw(
        tensor: Tensor, mean: float, std: float, a: float, b: float, generator: torch.Generator | None = None
    ) -> Tensor:
        if not tensor.is_cuda:
            found: Tensor = usual(tensor, mean, std, a, b, generator)
            return found
        with torch.no_grad():
            return tensor.normal_(mean, std, generator=generator)

    module._no_grad_trunc_normal_ = draw
