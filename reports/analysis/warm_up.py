"""Finds the first steps of a measured run that warm it up: they allocate, compile, open connections and fill caches.

The one place that decides which steps these are; frames mark them, and whatever takes means leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Steps from which it can be told what a run settles on, and how far above that one must be at the least.
SETTLED, LEAST_EXCESS = 2, 0.1


def leading(step_ns: Sequence[int]) -> int:
    """Return how many first steps, of steps in order that do the same, take longer than what the others settle on.

    The later half of the steps is what the run settles on: the range from its 10th to its 90th percentile, and as much
    again above it (more if the half is only a few steps, which do not show their range). A step of the warm-up lies
    above that, and at least 10 % above the median; the first step that does not ends the warm-up.
    """
    times = np.asarray(step_ns, float)
    settled = times[len(times) - max(SETTLED, len(times) // 2) :]
    if len(times) <= SETTLED:
        return 0
    low, median, high = np.quantile(settled, [0.1, 0.5, 0.9])
    limit = max(high + (1 + 4 / len(settled)) * (high - low), (1 + LEAST_EXCESS) * median)
    above = times[: len(times) - len(settled)] > limit
    return len(above) if above.all() else int(above.argmin())
