"""Run-length encoded lists, so that copies on each of 100,000 ranks take the memory of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import TypeVar, overload

T = TypeVar("T")

Run = tuple[int, T]
"""How many, and the first of them."""


class Runs(Sequence[T]):
    """A list of runs of items; `make(first, index)` makes an item, `index` from 0 in its run, at every access."""

    __slots__ = ("_make", "_runs", "_size")

    def __init__(self, runs: Iterable[Run[T]], make: Callable[[T, int], T]) -> None:
        self._runs = [(count, first) for count, first in runs if count]
        self._make = make
        self._size = sum([count for count, _ in self._runs])

    @property
    def runs(self) -> Sequence[Run[T]]:
        """Runs as (length, first item), none of them empty."""
        return self._runs

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for count, first in self._runs:
            yield from map(self._make, repeat(first), range(count))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        positions = range(self._size)[index]
        if isinstance(positions, range):
            whole = positions == range(self._size)
            return self if whole else [self[position] for position in positions]
        for count, first in self._runs:
            if positions < count:
                return self._make(first, positions)
            positions -= count
        raise AssertionError("a range's item lies in it")

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Runs | list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class KeptRuns(Runs[T]):
    """A list of runs whose items may be modified: the first access makes all items and keeps them."""

    __slots__ = ("_items",)

    def __init__(self, runs: Iterable[Run[T]], make: Callable[[T, int], T]) -> None:
        super().__init__(runs, make)
        self._items: list[T] | None = None

    @property
    def runs(self) -> Sequence[Run[T]]:
        """Runs; of one item each once the items are made. Modifying a run's first item before that modifies the whole
        run.
        """
        return self._runs if self._items is None else [(1, item) for item in self._items]

    def __iter__(self) -> Iterator[T]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._all()[index]

    def _all(self) -> list[T]:
        if self._items is None:
            self._items = list(super().__iter__())
        return self._items


def runs_of(items: Sequence[T]) -> Iterable[Run[T]]:
    """Return a list's runs of equal items as (length, item); an ordinary list's all have length 1."""
    return items.runs if isinstance(items, Runs) else zip(repeat(1), items)


def run_count(items: Sequence[T]) -> int:
    """Return the number of runs."""
    return len(items.runs) if isinstance(items, Runs) else len(items)
