"""Keeps arrays between predictions of one process, such as drawn ids, which many variations of a scenario share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Arrays = tuple[Ints, ...]


class ArrayCache:
    """Arrays by key, up to so many bytes: then those that were used longest ago go. By default nothing is kept."""

    def __init__(self) -> None:
        self._limit_bytes = self._size_bytes = 0
        self._arrays: OrderedDict[Hashable, tuple[npt.NDArray[np.integer], ...]] = OrderedDict()

    @contextmanager
    def up_to(self, limit_bytes: int) -> Iterator[None]:
        """Keep so much from now on, also beyond this context if that is entered again."""
        before, self._limit_bytes = self._limit_bytes, limit_bytes
        try:
            yield
        finally:
            self._limit_bytes = before

    def get(self, key: Hashable, make: Callable[[], Arrays]) -> Arrays:
        """The arrays of this key, made if they are not kept; nobody else has those that are returned."""
        if not self._limit_bytes:
            return make()
        if key in self._arrays:
            self._arrays.move_to_end(key)
            return tuple(each.astype(np.int64) for each in self._arrays[key])
        made = make()
        self._arrays[key] = small = tuple(map(_narrow, made))
        self._size_bytes += sum(each.nbytes for each in small)
        while self._size_bytes > self._limit_bytes:
            _, dropped = self._arrays.popitem(last=False)
            self._size_bytes -= sum(each.nbytes for each in dropped)
        return made


def _narrow(array: Ints) -> npt.NDArray[np.integer]:
    """A copy in the narrowest type that holds these numbers of at least 0: half of the memory, or an eighth."""
    return array.astype(np.min_scalar_type(int(array.max())) if array.size else np.uint8)


DRAWN = ArrayCache()
