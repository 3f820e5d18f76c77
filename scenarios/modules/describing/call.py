"""A call of a torch operator, with its arguments by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor

from scenarios.seam.operations.operation import Operation

# What a call runs: one operator, or several in order.
Operations = Operation | tuple[Operation, ...]


class OperatorCall:
    """A call of an operator: `name` without the overload, and the tensors `read` and `results`.

    `dtype` is that of its arithmetic: "tf32" if a GPU rounds products of float32 to it.
    """

    def __init__(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        *,
        read: Sequence[Tensor],
        results: Sequence[Tensor],
        dtype: str,
    ) -> None:
        self.name: str = func.overloadpacket.__name__
        self.read, self.results, self.dtype = read, results, dtype
        self._func, self._args, self._kwargs = func, args, kwargs

    def __getitem__(self, name: str) -> Any:
        """Return the argument of that name, or its default.

        Raises:
            KeyError: the operator has no such parameter.
        """
        place, usual = _parameters(self._func)[name]
        if place < len(self._args):
            return self._args[place]
        return self._kwargs.get(name, usual)

    def get(self, name: str, usual: Any = None) -> Any:
        """Return the argument of that name; `usual` if the operator has no such parameter."""
        return self[name] if name in _parameters(self._func) else usual

    @property
    def lists(self) -> list[Sequence[Tensor]]:
        """Lists of tensors among the arguments, without empty ones."""
        arguments = (*self._args, *self._kwargs.values())
        return [each for each in arguments if isinstance(each, (tuple, list)) and each and isinstance(each[0], Tensor)]


@cache
def _parameters(func: Any) -> dict[str, tuple[int, Any]]:
    """Return the places and defaults of an operator's parameters."""
    arguments = func._schema.arguments
    return {each.name: (place, each.default_value) for place, each in enumerate(arguments)}
