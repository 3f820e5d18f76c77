"""The steady steps of a run: those with the operations that most steps use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_Operation = tuple[str, str, str]  # kind, label, stream
# The operations of a step, each with how often a rank calls it.
Work = frozenset[tuple[_Operation, int]]


def steady_steps(works: Sequence[Work], work_of: Sequence[int]) -> list[bool]:
    """Return for each step whether it is a steady step of the run's last regime; step i did `works[work_of[i]]`.

    A regime begins where steps have new operations and no earlier kind of step comes back (PowerSGD begins). A last
    step that only adds operations to those of several steps does not begin a regime. The steady steps are those of the
    last regime closest to its usual operations: steps that fill or drain a pipeline lack some, steps that save or log
    have more.
    """
    names = [frozenset(operation for operation, _ in work) for work in works]
    first = _last_regime(names, work_of)
    kept = Counter(work_of[first:])
    usual = _usual(works, Counter(work_of), kept)
    last = {work: step for step, work in enumerate(work_of)}
    alike: dict[frozenset[_Operation], list[int]] = {}
    for work in kept:
        alike.setdefault(names[work], []).append(work)
    closest = max(
        alike.items(),
        key=lambda own: (-len(own[0] ^ usual), sum(kept[work] for work in own[1]), max(last[one] for one in own[1])),
        default=(usual, []),
    )[1]
    # The step that fills a pipeline may do what others do, only more often.
    most = max(closest, key=lambda work: (kept[work], last[work]), default=-1)
    chosen = {most} if 2 * kept[most] >= sum(kept[work] for work in closest) else set(closest)
    return [step >= first and work in chosen for step, work in enumerate(work_of)]


def _last_regime(names: Sequence[frozenset[_Operation]], work_of: Sequence[int]) -> int:
    """Return the step with which the last regime begins."""
    before = Counter(names[work] for work in work_of)
    after: set[frozenset[_Operation]] = set()
    shared = 0  # how many kinds of steps there are both before and after
    for step in range(len(work_of) - 1, 0, -1):
        own, previous = names[work_of[step]], names[work_of[step - 1]]
        before[own] -= 1
        if own not in after:
            after.add(own)
            shared += before[own] > 0
        elif not before[own]:
            shared -= 1
        is_extra = step == len(work_of) - 1 and previous <= own and step > 1 and names[work_of[step - 2]] == previous
        if not shared and not own <= previous and not is_extra:
            return step
    return 0


def _usual(works: Sequence[Work], run: Counter[int], kept: Counter[int]) -> frozenset[_Operation]:
    """Return the operations of more than half of the kept steps, and of half of them unless most of the run lacks them.

    Operations of half of the run's steps must also be called once a step on average.
    """
    steps, calls, in_run = Counter[_Operation](), Counter[_Operation](), Counter[_Operation]()
    for work, count in run.items():
        for operation, times in works[work]:
            in_run[operation] += count
            steps[operation] += kept[work]
            calls[operation] += kept[work] * times
    half, often = kept.total() / 2, run.total() / 2
    halved = (one for one, have in steps.items() if have == half and in_run[one] >= often)
    halved = (one for one in halved if calls[one] >= 2 * half or in_run[one] > often)
    return frozenset([*halved, *(one for one, have in steps.items() if have > half)])
