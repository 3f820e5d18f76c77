"""The base class of all descriptions of operators that have a law."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, TypeAlias

# An operator's name and its shapes.
Words = tuple[str, str]
# Bounds caches: programs have far fewer distinct operators, unless their ids differ in each step.
MOST_KEPT = 4096
_THOUSAND = 1000


class DescribedOperator:
    """An operator as pure data, which a law times; `kinds` are all subclasses by name."""

    __slots__ = ()
    kinds: ClassVar[dict[str, type[DescribedOperator]]] = {}

    def __init_subclass__(cls) -> None:
        cls.kinds[cls.__name__] = cls

    def words(self) -> Words:
        """Return torch's name of the operator, and its shapes in a few words."""
        raise NotImplementedError


Operation: TypeAlias = DescribedOperator  # in a kernel; sim.rank has a class of this name


@lru_cache(MOST_KEPT)
def words(operation: Operation) -> Words:
    """Return `operation.words()`, cached."""
    return operation.words()


def about(ids: int) -> str:
    """Return a number to two digits: ids that are drawn differ a little from step to step, which is no other shape."""
    if ids < _THOUSAND:
        return str(ids)
    factor, unit = (_THOUSAND**2, "M") if ids >= _THOUSAND**2 else (_THOUSAND, "k")
    return f"{float(f'{ids / factor:.2g}'):g}{unit}"


def by(*extents: int) -> str:
    """Return extents such as "64x3"."""
    return "x".join(map(str, extents))


def back(name: str, is_backward: bool) -> str:
    """Return an operator's name, or its backward pass's."""
    return f"{name}_backward" if is_backward else name
