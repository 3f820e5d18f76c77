"""What programs other than the recommender are about."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What the program `all_to_all` sends: `size_bytes` a rank; "random" splits are drawn anew each step.

    `skew` is the exponent of the peers' shares: 0 is even in expectation; peer k gets a weight of (k+1) ** -skew.
    """

    size_bytes: int
    splits: Literal["even", "random"] = "even"
    skew: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """What the program `collective` calls each step; `size_bytes` is a rank's larger buffer.

    `splits` and `skew` are as in `Exchange`.
    """

    op: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
    size_bytes: int
    splits: Literal["even", "random"] = "even"
    skew: float = 0.0
    dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """What the program `powersgd` reduces: parameter shapes in the order of the forward pass.

    `forward_flops` and `backward_flops` a step on each rank are spread over the parameters by their number of elements.
    """

    shapes: tuple[tuple[int, ...], ...]
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file of a program of one's own; `name` is relative to the folder of the program's file or package."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Of the text, in UTF-8."""
        return hashlib.sha256(self.text.encode()).hexdigest()
