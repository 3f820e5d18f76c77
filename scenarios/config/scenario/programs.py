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
    """The exchange of program 'all_to_all', once per step.

    "random" splits are drawn anew each step. `skew` is the exponent of the peers' shares; with 0 expected shares are
    even.
    """

    op: ClassVar[Literal["all_to_all"]] = "all_to_all"

    size_bytes: Annotated[Size, "Bytes that each rank sends in total, such as '64 MiB'. Required."]
    splits: Annotated[
        Literal["even", "random"],
        "'even': equal parts for all peers; 'random': parts drawn anew each step. Default 'even'.",
    ] = "even"
    skew: Annotated[Skew, "With splits = 'random': peer k gets a weight of (k + 1) ** -skew. Default 0."] = 0.0
    dtype: Annotated[ElementType, "Dtype of the elements. Default 'float32'."] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCollective:
    """The call of program 'collective', once per step."""

    op: Annotated[
        Timed,
        "The collective; rank 0 is the root of a broadcast. Required.",
    ]
    size_bytes: Annotated[
        Size,
        "Size of each rank's larger buffer: the output of all_gather, the input of all others. Required.",
    ]
    splits: Annotated[
        Literal["even", "random"], "How an all_to_all is split: 'even' or 'random', as in `exchange`. Default 'even'."
    ] = "even"
    skew: Annotated[Skew, "With splits = 'random': peer k gets a weight of (k + 1) ** -skew. Default 0."] = 0.0
    dtype: Annotated[ElementType, "Dtype of the elements. Default 'float32'."] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """The gradients that program 'powersgd' reduces.

    `forward_flops` and `backward_flops` are spread over the parameters by their number of elements.
    """

    file_keys: ClassVar[tuple[Key, ...]] = (
        Key("model", "Model whose parameter shapes are used instead of `shapes`.", accepts=Literal["resnet50"]),
    )

    shapes: Annotated[tuple[tuple[Count, ...], ...], "Parameter shapes in the order of the forward pass."]
    forward_flops: Annotated[Flops, "Arithmetic of a rank's forward pass. Default '0 FLOP'."] = 0.0
    backward_flops: Annotated[Flops, "Arithmetic of a rank's backward pass, such as '250 GFLOP'. Default '0 FLOP'."] = (
        0.0
    )
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16", "float16"], "Dtype of the gradients. Default 'float32'."
    ] = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source file of a user's own program, with its text.

    `name` is relative to the folder of the program's file or package.
    """

    name: str
    text: str

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text in UTF-8, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()
