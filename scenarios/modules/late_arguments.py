"""Detects when a module first uses a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class Needs(TorchFunctionMode):
    """A mode that calls `needed` with the indices of tensors before a function of torch first uses them."""

    def __init__(self, tensors: Sequence[Tensor], needed: Callable[[list[int]], object]) -> None:
        super().__init__()
        # By id: tensors compare element by element, which would itself use their values.
        self._left = {id(tensor): index for index, tensor in enumerate(tensors)}
        self._needed = needed

    def is_left(self, tensor: Tensor) -> bool:
        """Return whether the tensor is watched and has not been used yet."""
        return id(tensor) in self._left

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._left and getattr(func, "__name__", "") not in _OF_SHAPE:
            found = [id(leaf) for leaf in tree_leaves((args, kwargs)) if id(leaf) in self._left]
            if found:
                # All at once: one stop serves every late tensor of this call.
                self._needed([self._left.pop(each) for each in dict.fromkeys(found)])
        return func(*args, **(kwargs or {}))


# Functions that read no values, such as attributes of tensors.
_OF_SHAPE = frozenset({"__get__", "__len__", "size", "dim", "numel", "stride", "is_contiguous", "is_floating_point"})
