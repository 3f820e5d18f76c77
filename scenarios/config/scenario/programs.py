"""What programs other than the recommender send and compute."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from scenarios.config.keys import Key
from scenarios.config.toml.values import Count, Flops, Size, Skew
from scenarios.seam.traits import Timed

ElementType = Literal[
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What program 'all_to_all' sends.

    "random" splits are drawn anew each step. `skew` is the exponent of the peers' shares; with 0 expected shares are
    even.
    """

    op: ClassVar[Literal["all_to_all"]] = "all_to_all"

    size_bytes: Annotated[Size, Key("size", "Total that one rank sends, such as '64 MiB'. Required.")]
    splits: Annotated[Literal["even", "random"], "Equal for all peers, or drawn anew each step. Default 'even'."] = (
        "even"
    )
    skew: Annotated[Skew, "With random splits: peer k gets a weight of (k + 1) ** -skew. Default 0."] = 0.0
    dtype: Annotated[ElementType, "Dtype of the elements. Default 'float32'."] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCollective:
    """What program 'collective' calls each step."""

    op: Annotated[
        Timed,
        "The collective; a broadcast is rank 0's. Required.",
    ]
    size_bytes: Annotated[
        Size, Key("size", "A rank's larger buffer: what all_gather gives out, what the others take. Required.")
    ]
    splits: Annotated[Literal["even", "random"], "How an all_to_all is split, as in `exchange`. Default 'even'."] = (
        "even"
    )
    skew: Annotated[Skew, "With random splits: peer k gets a weight of (k + 1) ** -skew. Default 0."] = 0.0
    dtype: Annotated[ElementType, "Dtype of the elements. Default 'float32'."] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """What program 'powersgd' reduces.

    `forward_flops` and `backward_flops` are spread over the parameters by their number of elements.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key("model", "A known model's parameter shapes, instead of `shapes`.", accepts=Literal["resnet50"]),
    )

    shapes: Annotated[tuple[tuple[Count, ...], ...], "Parameter shapes in the order of the forward pass."]
    forward_flops: Annotated[Flops, "A rank's forward pass, before the backward pass. Default '0 FLOP'."] = 0.0
    backward_flops: Annotated[Flops, "A rank's backward pass, such as '250 GFLOP'. Default '0 FLOP'."] = 0.0
    dtype: Annotated[Literal["float32", "float64", "bfloat16", "float16"], "Dtype of gradients. Default 'float32'."] = (
        "float32"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file of a user's own program; `name` is relative to the folder of the program's file or package."""

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text in UTF-8, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()
