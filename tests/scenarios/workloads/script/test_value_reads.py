"""Which loops nothing but a value may end."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from itertools import count, cycle, repeat

from scenarios.workloads.script.gpu.values.value_reads import loop_around


def asks() -> bool:
    """Return whether the innermost loop around the line that calls may be endless."""
    return loop_around(sys._getframe(1))[1]


def below() -> bool:
    return asks()


class Truth:
    """A truth that is true once."""

    def __init__(self) -> None:
        self.found = list[bool]()

    def __bool__(self) -> bool:
        self.found.append(loop_around(sys._getframe(1))[1])
        return len(self.found) < 2


def test_only_a_value_ends_them() -> None:
    truth = Truth()
    while truth:
        pass
    while not asks():
        raise AssertionError
    while True:
        found = [below()]
        for _ in range(asks()):  # made once
            found += [True]
        break
    for _ in itertools.count():
        found.append(asks())
        break
    for _ in count(1):
        found.append(asks())
        break
    for _ in cycle("ab"):
        found.append(asks())
        break
    for _ in repeat(1):
        found.append(asks())
        break
    for _ in iter(partial(int), 1):
        found.append(asks())
        break
    assert truth.found == [True, True]
    assert found == [True] * 7


def test_others_end_by_themselves() -> None:
    found = [asks(), below()]
    while True:
        found += [asks() for _ in range(2)]
        found += {name: asks() for name in "ab"}.values()
        found += list(below() for _ in range(2))  # noqa: C400
        for _ in repeat(1, 1):
            found.append(asks())
        for _ in iter([1]):
            found.append(below())
        for each in range(2):

            def inner(each: int = each) -> bool:
                return each < 0 or asks()

            found.append(inner())
        break
    assert found == [False] * 12
