"""Orders measurements: round by round, each in another order, until the points' times are known."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.config.scenario import Scenario

# Steps of one launch resemble each other: one launch, however steady, does not show how launches differ.
LEAST_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class MeasurablePoint:
    """A point of a study that can be measured."""

    index: int
    values: Mapping[str, object]
    digest: str
    scenario: Scenario


@dataclass
class MeasuredPoint:
    """A point's measurements: the median step of each round, in ns, and whether a round ended early."""

    medians_ns: list[float] = field(default_factory=list)
    failed: bool = False


def order(
    points: Sequence[MeasurablePoint],
    measured: Mapping[str, MeasuredPoint],
    *,
    rounds: int,
    is_known: Callable[[Sequence[float]], bool],
) -> Iterator[tuple[int, MeasurablePoint]]:
    """Yield the number of a round, from 1, and the point to measure in it, until all are known or have had `rounds`.

    All points have their round before any point has its next one, so that a machine that becomes slower or quicker
    favours none. A point whose round ended early is left out.

    Args:
        points: to measure.
        measured: by digest, read before each point: the caller adds outcomes.
        rounds: most rounds of a point.
        is_known: whether medians (ns) are precise enough.
    """
    for number in range(1, rounds + 1):
        mixed = list(points)
        # Seeded by the round: an interrupted command continues in the same order.
        random.Random(number).shuffle(mixed)
        for point in mixed:
            known = measured[point.digest]
            if known.failed or len(known.medians_ns) >= number:
                continue
            if len(known.medians_ns) < LEAST_ROUNDS or not is_known(known.medians_ns):
                yield number, point
