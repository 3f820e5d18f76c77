"""The periodic part of training: steps, then a checkpoint, again and again, as sums that need no loop.

A cycle is `interval_steps` steps and the checkpoint after them. While steps run, the checkpoint before them may still
be written.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from sim.job.model import JobModel


@dataclass(frozen=True, slots=True)
class SavedWork:
    """The progress of training at a time after a start.

    Attributes:
        saved: cycles whose checkpoint could be loaded now.
        saved_s: seconds that these cycles took.
        steps: steps done, those of `saved` cycles included.
    """

    saved: int
    saved_s: float
    steps: float


class Cycles:
    """A job's cycles on `hosts` hosts; `first` is the number of the first cycle's checkpoint in its period."""

    def __init__(self, model: JobModel, hosts: int) -> None:
        step, writing = model.by_hosts[hosts], model.writing
        self.interval, self.step_s, self.share = model.interval_steps, step.step_s, step.share
        # Time of training, evaluations and waiting for input included, over that of steps alone.
        self.lengthened = (1 + model.evaluation) / (1 - model.input_stall)
        self._per_step_s = step.step_s * self.lengthened
        self._speed = step.step_s / step.writing_s  # of steps while a checkpoint is written
        self._blocks, self._writes = writing.blocks_s, writing.background_s
        self._period = len(writing.blocks_s)
        self._walls = [
            self._train_s(self.interval, self._writes[number - 1]) + block
            for number, block in enumerate(writing.blocks_s)
        ]
        self._ends = list(accumulate(self._walls))
        self._begins = [0.0, *self._ends[:-1]]

    def _train_s(self, steps: float, writes_s: float) -> float:
        """Return the seconds of steps in which a checkpoint is written for the first `writes_s` seconds."""
        alone_s = steps * self._per_step_s
        if alone_s <= writes_s * self._speed:
            return max(alone_s / self._speed, writes_s if steps >= self.interval else 0.0)
        return writes_s + alone_s - writes_s * self._speed

    def _steps_in(self, train_s: float, writes_s: float) -> float:
        """Return the steps done in these seconds; the inverse of `_train_s`."""
        alone_s = min(train_s, writes_s) * self._speed + max(train_s - writes_s, 0.0)
        return min(alone_s / self._per_step_s, self.interval)

    def seconds(self, cycles: int, first: int) -> float:
        """Return how long the first cycles after a start take."""
        if not cycles:
            return 0.0
        periods, last = divmod(first + cycles - 1, self._period)
        return periods * self._ends[-1] + self._ends[last] - self._begins[first] - self._not_yet(first)

    def _not_yet(self, first: int) -> float:
        """Return how much shorter a start's first cycle is, beside which no checkpoint is written yet."""
        return self._walls[first] - self._blocks[first] - self.interval * self._per_step_s

    def after(self, seconds: float, first: int) -> SavedWork:
        """Return how far training has come so long after a start."""
        on_axis = seconds + self._begins[first] + self._not_yet(first)
        periods, within = divmod(on_axis, self._ends[-1])
        number = min(bisect_right(self._ends, within), self._period - 1)
        done = max(int(periods) * self._period + number - first, 0)
        began_s = self.seconds(done, first)
        writes_s = self._writes[(first + done - 1) % self._period] if done else 0.0
        steps = done * self.interval + self._steps_in(seconds - began_s, writes_s)
        if done and seconds - began_s < writes_s:
            return SavedWork(done - 1, self.seconds(done - 1, first), steps)
        return SavedWork(done, began_s, steps)

    def until(self, steps: float, first: int) -> float:
        """Return the seconds from a start until `steps` steps are done and their last checkpoint is written."""
        whole = max(int(-(-steps // self.interval)) - 1, 0)
        last = (first + whole) % self._period
        writes_s = self._writes[last - 1] if whole else 0.0
        rest_s = self._train_s(steps - whole * self.interval, writes_s)
        return self.seconds(whole, first) + rest_s + self._blocks[last] + self._writes[last]

    def saved(self, cycles: int, first: int) -> SavedWork:
        """Return how far training has come when the first cycles after a start are saved."""
        return SavedWork(cycles, self.seconds(cycles, first), cycles * self.interval)

    def saved_after(self, seconds: float, first: int) -> tuple[int, float]:
        """Return the cycles and seconds from a start to the first checkpoint that is safe at `seconds` or later."""
        cycles = max(self.after(max(seconds, 0.0), first).saved, 1)
        while (ends_s := self.seconds(cycles, first) + self._writes[(first + cycles - 1) % self._period]) < seconds:
            cycles += 1
        return cycles, ends_s
