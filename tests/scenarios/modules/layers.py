"""Random modules of several layers: used in any order, twice or never, in two precisions, with branches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

WIDTH = 24


@dataclass(frozen=True)
class Shape:
    """A module of layers of these inner widths, used in this order, each perhaps twice; some never."""

    inner: tuple[int, ...]
    order: tuple[int, ...]
    halves: tuple[bool, ...]
    has_branch: bool


class Layers(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, inner), nn.ReLU(), nn.Linear(inner, WIDTH)) for inner in shape.inner
        )
        for layer, is_half in zip(self.layers, shape.halves, strict=True):
            layer.to(torch.bfloat16 if is_half else torch.float32)
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        first = x
        for index in self.shape.order:
            layer = self.layers[index]
            x = (layer(x.to(next(layer.parameters()).dtype)).float() + x) / 2  # does not grow with the number of layers
            if self.shape.has_branch:
                first, x = x, (first + x) / 2
        return (x * self.scale).sum()


@st.composite
def shapes(draw: st.DrawFn, *, unused: bool) -> Shape:
    count = draw(st.integers(2, 7))
    places = st.lists(st.integers(0, count - 1), min_size=1, max_size=9)
    order = tuple(draw(places)) if unused else tuple(draw(st.permutations([*range(count), *draw(places)])))
    return Shape(
        inner=tuple(draw(st.lists(st.integers(1, 200), min_size=count, max_size=count))),
        order=order,
        halves=tuple(draw(st.lists(st.booleans(), min_size=count, max_size=count))),
        has_branch=draw(st.booleans()),
    )
