"""Operators on lists of tensors as pure data: `_foreach_*` and the fused optimizers."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.seam.operations.operation import DescribedOperator, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach(DescribedOperator):
    """A call of a multi-tensor operator: `torch._foreach_*` or `torch._fused_*`.

    `numels` holds each tensor's number of elements, in the order of the list. `lists` is the number of tensor lists
    that the kernel takes (fused Adam 4: parameters, gradients, two moments); `read` of them are read and `written` are
    written, as `dtype`.
    """

    name: str
    dtype: str
    numels: tuple[int, ...]
    lists: int
    read: int
    written: int

    def words(self) -> Words:
        return self.name, f"{sum(self.numels)} in {len(self.numels)} tensors, {self.dtype}"
