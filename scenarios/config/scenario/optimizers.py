"""How tables and the dense part of a recommender are updated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from scenarios.config.keys import Key, OnlyWith
from scenarios.config.toml.values import Decay, LearningRate, Name, Positive, WeightDecay

OptimizerKind = Literal["sgd", "adagrad", "adam", "partial_rowwise_adam", "lamb", "partial_rowwise_lamb"]
# Defaults as in fbgemm 1.8 and torch.optim; Adagrad's epsilon as in torch.optim.
ADAGRAD_EPSILON, MOMENTS_EPSILON = 1e-10, 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """The optimizer of the tables, and of the dense part without a `dense_optimizer`."""

    kind: Annotated[
        OptimizerKind,
        "The optimizer, as in fbgemm: SGD, Adagrad, or Adam and LAMB in several forms. Default 'sgd'.",
    ] = "sgd"
    learning_rate: Annotated[
        LearningRate, "Learning rate. Default 0.01; source: fbgemm 1.8's optimizers.", Key(after="state")
    ] = 0.01
    state: Annotated[
        Literal["row", "element"],
        "State of 'adagrad': one float32 per row of a table, or one per element. Default 'row'.",
        OnlyWith(kind=("adagrad",)),
    ] = "row"
    eps: Annotated[
        Positive | None,
        "Number added to square roots to avoid divisions by zero. Default 1e-10 with 'adagrad', else 1e-8;"
        " source: torch.optim.",
    ] = None
    beta1: Annotated[Decay, "Decay of the mean of gradients, with Adam and LAMB. Default 0.9; source: torch.optim."] = (
        0.9
    )
    beta2: Annotated[
        Decay, "Decay of the mean of squared gradients, with Adam and LAMB. Default 0.999; source: torch.optim."
    ] = 0.999
    weight_decay: Annotated[
        WeightDecay,
        "Share of each weight that a step subtracts, before multiplication by the learning rate. Default 0.",
    ] = 0.0

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
    """The optimizer of the dense part, from torch.optim. All keys but `kind` are its arguments."""

    kind: Annotated[Name, "Class in torch.optim, such as 'Adam' or 'AdamW'. Required."]
    options: Annotated[Mapping[str, Any], Key("*")]
