"""Closed forms of goodput and of the best checkpoint interval, beside the simulation as a check.

They hold for exponential times between failures, enough spare hosts, no slow parts and whole checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sim.job.model import Interruption, JobModel

_HOPELESS = 700  # failures in a cycle, in the mean: one without any has a probability of 1e-304


def young_s(checkpoint_s: float, between_failures_s: float) -> float:
    """Return Young's interval: seconds of work between two checkpoints (CACM 17(9), 1974)."""
    return math.sqrt(2 * checkpoint_s * between_failures_s)


def daly_s(checkpoint_s: float, between_failures_s: float) -> float:
    """Return Daly's interval of higher order (Future Generation Computer Systems 22(3), 2006, equation 37)."""
    if checkpoint_s >= 2 * between_failures_s:
        return between_failures_s
    ratio = checkpoint_s / (2 * between_failures_s)
    return young_s(checkpoint_s, between_failures_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def available_s(checkpoint_s: float, between_failures_s: float, recovery_s: float) -> float:
    """Return the interval of highest availability, from the begin of one checkpoint to the next (arXiv 2410.18124)."""
    return checkpoint_s + math.sqrt(2 * (between_failures_s + recovery_s) * checkpoint_s + checkpoint_s**2)


def goodput(model: JobModel) -> float:
    """Return the expected share of a long job's time in which steps are done that count.

    Daly's complete model: a cycle of L seconds is begun again at each failure, which comes 1/r seconds after the last
    in the mean: (e^(rL) - 1) (1/r + recovery). Recoveries are interrupted at the same rate. Checkpoints written beside
    steps are lost with up to their time of writing; planned interruptions lose nothing but their own time.
    """
    unplanned = [one for one in model.interruptions if not one.planned]
    planned = [one for one in model.interruptions if one.planned]
    rate = sum(one.per_s for one in unplanned)
    alone_s = model.interval_steps * model.step_s
    wall_s, lag_s = _cycle(model)
    took_s = wall_s
    if rate:
        # e^(r lag) - 1 of the cycles' time is work done after a checkpoint that was not yet written.
        if rate * (wall_s + lag_s) > _HOPELESS:
            return 0.0
        took_s = math.expm1(rate * wall_s) * (1 / rate + _recovery(model, unplanned, rate)) * math.exp(rate * lag_s)
    saves_s = model.writing.blocks_s[0] + model.writing.background_s[0]
    pauses = sum(one.per_s * (saves_s + _needs_s(model, one)) for one in planned)
    return alone_s / (took_s * (1 + pauses))


def _cycle(model: JobModel) -> tuple[float, float]:
    """Return the mean seconds of a cycle, and by how much later its checkpoint is safe than the first after a start.

    The first cycle after a start has no write beside it, so that it is shorter.
    """
    lengthened = (1 + model.evaluation) / (1 - model.input_stall)
    step = model.by_hosts[model.hosts]
    walls_s, lags_s, writing, count = 0.0, 0.0, model.writing, len(model.writing.blocks_s)
    for block_s, beside_s in zip(writing.blocks_s, writing.background_s, strict=True):
        alone_s = model.interval_steps * step.step_s * lengthened
        slowed_s = min(beside_s, alone_s * step.writing_s / step.step_s) * (1 - step.step_s / step.writing_s)
        train_s = max(alone_s + slowed_s, beside_s)
        walls_s += train_s + block_s
        lags_s += beside_s - (train_s - alone_s)
    return walls_s / count, lags_s / count


def _recovery(model: JobModel, kinds: list[Interruption], rate: float) -> float:
    """Return the mean seconds of a recovery, with those that interrupt it."""
    ends = sum(one.per_s * math.exp(-rate * _needs_s(model, one)) for one in kinds) / rate
    return (1 - ends) / (rate * ends) if ends else math.inf


def _needs_s(model: JobModel, kind: Interruption) -> float:
    """Return the seconds from an interruption to the first step after it, if there is a spare host."""
    joins_s = model.replacement_s if kind.loses_host else 0.0
    restores = model.writing.restore_s
    return kind.detection_s + joins_s + model.restart_s + sum(restores) / len(restores)


def best_interval(model: JobModel, value: Callable[[JobModel], float] = goodput) -> int:
    """Return the steps between two checkpoints at which a job has the highest `value`, which has one maximum.

    Golden-section search over the logarithm of the interval, from one step to a tenfold mean time between failures.
    """
    if not model.failures_per_s:
        return max(round(86_400 / model.step_s), 1)
    low, high = 0.0, math.log(max(10 / model.failures_per_s / model.step_s, 2.0))
    known: dict[int, float] = {}

    def at(place: float) -> float:
        steps = max(round(math.exp(place)), 1)
        if steps not in known:
            known[steps] = value(model.with_interval(steps))
        return known[steps]

    shrink = (math.sqrt(5) - 1) / 2
    while high - low > 1e-3 and math.exp(high) - math.exp(low) > 1:
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (left, high) if at(left) < at(right) else (low, right)
    return max(known, key=lambda steps: (known[steps], -steps))
