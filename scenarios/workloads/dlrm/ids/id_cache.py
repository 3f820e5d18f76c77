"""Caches arrays, such as drawn ids, between predictions of one process: many variations of a scenario share them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

Arrays = tuple[npt.NDArray[np.integer], ...]


class ArrayCache:
    """An LRU cache of arrays by key, up to a number of bytes; by default 0, so that nothing is kept."""

    def __init__(self) -> None:
        self._limit_bytes = self._size_bytes = 0
        self._arrays: OrderedDict[Hashable, Arrays] = OrderedDict()

    @contextmanager
    def up_to(self, limit_bytes: int) -> Iterator[None]:
        """Set the limit within this context; arrays stay for the next time it is entered."""
        before, self._limit_bytes = self._limit_bytes, limit_bytes
        try:
            yield
        finally:
            self._limit_bytes = before

    def get(self, key: Hashable, make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays of this key, made if they are not cached; cached ones are narrow, and cannot be written."""
        if not self._limit_bytes:
            return make()
        if key in self._arrays:
            self._arrays.move_to_end(key)
            return self._arrays[key]
        self._arrays[key] = small = tuple(map(_narrow, make()))
        self._size_bytes += sum(each.nbytes for each in small)
        while self._size_bytes > self._limit_bytes:
            _, dropped = self._arrays.popitem(last=False)
            self._size_bytes -= sum(each.nbytes for each in dropped)
        return small


def _narrow(array: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Return a copy in the narrowest type that holds these numbers of at least 0: half of the memory, or an eighth."""
    narrow = array.astype(np.min_scalar_type(int(array.max())) if array.size else np.uint8)
    narrow.flags.writeable = False
    return narrow


DRAWN = ArrayCache()
