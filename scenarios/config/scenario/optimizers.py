"""How tables and the dense part of a recommender are updated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from scenarios.config.keys import Key, OnlyWith
from scenarios.config.toml.values import Decay, LearningRate, Name, Positive, Skew

OptimizerKind = Literal["sgd", "adagrad", "adam", "partial_rowwise_adam", "lamb", "partial_rowwise_lamb"]
# Defaults as in fbgemm 1.8 and torch.optim; Adagrad's epsilon as in torch.optim.
ADAGRAD_EPSILON, MOMENTS_EPSILON = 1e-10, 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """How parameters are updated."""

    kind: Annotated[
        OptimizerKind,
        "SGD; Adagrad (steps shrink as gradients accumulate); Adam and LAMB (moments), as in fbgemm. Default 'sgd'.",
    ] = "sgd"
    learning_rate: Annotated[LearningRate, Key(doc="Learning rate. Default 0.01.", after="state")] = 0.01
    state: Annotated[
        Literal["row", "element"],
        "Whether 'adagrad' keeps one float32 for each row of a table, or for each element. Default 'row'.",
        OnlyWith(kind=("adagrad",)),
    ] = "row"
    eps: Annotated[Positive | None, "What is added to roots of squares. Default 1e-10 with 'adagrad', else 1e-8."] = (
        None
    )
    beta1: Annotated[Decay, "What the mean of gradients keeps in a step, of 'adam' and those below. Default 0.9."] = 0.9
    beta2: Annotated[Decay, "What the mean of their squares keeps. Default 0.999."] = 0.999
    weight_decay: Annotated[Skew, "The share of weights that a step takes, times the learning rate. Default 0."] = 0.0

    @property
    def epsilon(self) -> float:
        """`eps`, or its default."""
        return self.eps or (ADAGRAD_EPSILON if self.kind == "adagrad" else MOMENTS_EPSILON)

    @property
    def has_moments(self) -> bool:
        """Whether the optimizer is Adam or LAMB, in any form."""
        return self.kind not in ("sgd", "adagrad")

    @property
    def element_numbers(self) -> int:
        """The number of float32 values of state for each element of a table."""
        of_adagrad = int(self.state == "element")
        return {"sgd": 0, "adagrad": of_adagrad, "adam": 2, "lamb": 2}.get(self.kind, 1)

    @property
    def row_numbers(self) -> int:
        """The number of float32 values of state for each row of a table, besides those for its elements."""
        of_adagrad = int(self.state == "row")
        return {"sgd": 0, "adagrad": of_adagrad, "adam": 0, "lamb": 0}.get(self.kind, 1)

    def state_bytes(self, columns: int) -> int:
        """Return the bytes of state for a row of `columns` elements."""
        return 4 * (self.row_numbers + self.element_numbers * columns)

    @property
    def planned_bytes(self) -> tuple[int, int]:
        """The bytes of state that the planner counts for each row, and for each element.

        TorchRec 1.8.0 (`_get_optimizer_multipler`) has rules for SGD, Adam and row-wise Adagrad; all others count as 4
        bytes an element, even LAMB, which keeps twice that.
        """
        if self.kind in ("sgd", "adagrad", "adam"):
            return 4 * self.row_numbers, 4 * self.element_numbers
        return 0, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseOptimizer:
    """How the dense part is updated: an optimizer of torch.optim. All keys but `kind` are its arguments."""

    kind: Annotated[Name, "Its class, such as 'Adam' or 'AdamW'. Required."]
    options: Annotated[Mapping[str, Any], Key("*")]
