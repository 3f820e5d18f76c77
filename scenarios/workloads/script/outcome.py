"""Judges whether the runs of all ranks make a prediction, and explains why not; loads no torch."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scenarios.config.scenario import Scenario
from scenarios.config.units import format_ns
from scenarios.seam.errors import ScriptError
from scenarios.seam.memory import MemoryPart
from scenarios.seam.trace import CACHED, MemoryRow
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.host.cpu_work import CpuWork

# Fewer passes or calls than this cannot mark steps: the first one belongs to set-up.
_LEAST = 3
# A step without calls may compute in the script's lines; one shorter than this share of others is a double mark.
_LEAST_SHARE = 0.5
_MOST_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one rank's script.

    Attributes:
        steps: how many whole steps the rank made.
        seen: the process's report at its end: how it ended, the lines that started processes, and how often each
            optimizer stepped, backward passes ran, and functions of torch.distributed were called; None: the rank was
            stopped after the requested number of steps.
        has_called: whether the rank made any call of torch.distributed.
    """

    steps: int
    seen: Mapping[str, Any] | None
    has_called: bool


def check(outcomes: Mapping[int, Outcome], script: Script) -> None:
    """Check that ranks made steps, the same number each, and, if there are several ranks, any collective call.

    Raises:
        ScriptError: one of these does not hold.
    """
    by_steps: dict[int, list[int]] = {}
    for rank, outcome in sorted(outcomes.items()):
        by_steps.setdefault(outcome.steps, []).append(rank)
    if len(by_steps) > 1:
        made = ", ".join(f"{_list_numbers('rank', ranks)} made {steps:,}" for steps, ranks in sorted(by_steps.items()))
        (fewest, *_) = by_steps[min(by_steps)]
        raise ScriptError(
            f"{script.path}: ranks did not make the same number of steps: {made}; rank {fewest}'s script ended"
            f" {_how(outcomes[fewest])}; expected each rank to go through the same steps ({_WAYS})"
        )
    if 0 in by_steps:
        first = outcomes[by_steps[0][0]]
        raise ScriptError(
            f"{script.path}: no step was seen: the script ended {_how(first)}, after {_describe_counts(first)};"
            f" {_tell_expected(script, first)}"
        )

    if len(outcomes) > 1 and not any(outcome.has_called for outcome in outcomes.values()):
        raise ScriptError(
            f"{script.path}: none of the {len(outcomes):,} ranks that ran made a call of torch.distributed, so that"
            " each trains by itself: expected collectives, such as DistributedDataParallel's, or one rank (--hosts 1"
            " --gpus-per-host 1)"
        )


def describe_end(code: int | None) -> str:
    """Return a description of how a rank's process ended, given its exit code."""
    if code != -signal.SIGKILL:
        return f"its process ended with code {code}"
    return "its process was killed (SIGKILL), as the system does where memory runs out: expected room for all ranks"


class Outcomes:
    """A collection of the outcomes of a prediction's ranks, `count` of which are simulated.

    Attributes:
        priced: the steps in which any rank made a call, launched a kernel or, on CPUs, ran a module.
        cpu_work: the work of rank 0's host during steps, next to its GPU.
    """

    def __init__(self, scenario: Scenario, count: int) -> None:
        assert isinstance(scenario.options, Script)
        self._scenario, self._script, self._count = scenario, scenario.options, count
        self._of: dict[int, Outcome] = {}
        self._left_out = dict[str, None]()
        self.cpu_work = CpuWork(scenario.cluster.host.gpu.eager)
        self._is_noted = False  # whether the note about too few steps was printed; once, for all variants
        self.priced: set[int] = set()
        self._cpu_ns = Counter[int]()  # by step, of all ranks

    def anew(self) -> Outcomes:
        """Return an empty collection for a variant of the program, which does not repeat notes."""
        made = Outcomes(self._scenario, self._count)
        made._is_noted = self._is_noted
        return made

    def begin(self) -> None:
        """Register a rank's start; reset all if every rank had ended, as a program may be simulated again."""
        if len(self._of) == self._count:
            self._of, self._left_out, self.priced = {}, {}, set()
            self._cpu_ns.clear()
            self.cpu_work.clear()

    def add(self, rank: int, outcome: Outcome) -> None:
        """Store the outcome of a rank's script."""
        self._of[rank] = outcome

    def note_computed(self, step: int, cpu_ns: int, *, is_of_module: bool) -> None:
        """Add a rank's CPU time in a step, spent in a module or in the script's own lines."""
        self._cpu_ns[step] += cpu_ns
        if is_of_module:
            self.priced.add(step)

    def note_left_out(self, found: Sequence[str]) -> None:
        """Add descriptions of work of rank 0 that is not predicted."""
        self._left_out.update(dict.fromkeys(found))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Descriptions of the work that the prediction leaves out."""
        return (*self._left_out, *self.cpu_work.words(self._steps, beside=True))

    @property
    def on_cpu(self) -> tuple[str, ...]:
        """Descriptions of the predicted CPU work next to the GPU."""
        return tuple(self.cpu_work.words(self._steps, beside=False))

    def judge(self) -> None:
        """Check all outcomes as `Program.judge` requires, and note if there are fewer steps than requested.

        Raises:
            ScriptError: `check` fails, or there are steps of which nothing is predicted.
        """
        check(self._of, self._script)
        steps, cluster = self._steps, self._scenario.cluster
        empty = sorted(set(range(steps)) - self.priced)
        if cluster.host.gpu.device.is_launched:
            if len(empty) == steps:
                raise ScriptError(
                    _nothing_priced(self._script, cluster.profile, self.cpu_work.total_ns / max(steps, 1))
                )
            if empty:
                raise ScriptError(_empty(self._script, empty, "launched no kernel"))
        elif short := self._short(empty):
            raise ScriptError(_empty(self._script, short, "ran no module"))
        if steps < self._scenario.run.steps and not self._is_noted:
            self._is_noted = True
            ended = (
                f"ended after {steps:,} of {self._scenario.run.steps:,} steps (run.steps); what lies before the first"
                " mark, such as the first iteration, is no step"
            )
            print(f"note: {self._script.path}: {ended}", file=sys.stderr)

    @property
    def _steps(self) -> int:
        """The smallest number of steps that any rank made."""
        return min((outcome.steps for outcome in self._of.values()), default=0)

    def _short(self, empty: Sequence[int]) -> list[int]:
        """Return the steps without modules and calls whose CPU time is less than half the median of the others."""
        others = [self._cpu_ns[step] for step in range(self._steps) if step in self.priced]
        return [step for step in empty if others and self._cpu_ns[step] < _LEAST_SHARE * median(others)]

    def standing(self, steps: Mapping[int, int]) -> str:
        """Return the end of a deadlock's message: whose scripts are over, and how many steps the others have begun."""
        if not self._of:
            return ""
        over = [
            f"rank {rank}'s script was ended after its {_times(outcome.steps, 'step')} (run.steps)"
            if outcome.seen is None
            else f"rank {rank}'s script ended {_how(outcome)}, after {_times(outcome.steps, 'whole step')}"
            for rank, outcome in sorted(self._of.items())
        ]
        others = [
            f"rank {rank} has begun {_times(begun, 'step')}" for rank, begun in steps.items() if rank not in self._of
        ]
        listed = "; ".join([*over[:_MOST_LISTED], *others[:_MOST_LISTED]])
        return f"; {listed}; expected each rank to go through the same steps ({_WAYS})"


def _nothing_priced(script: Script, profile: str, on_cpu_ns: float) -> str:
    host = f"the host's own work takes {format_ns(on_cpu_ns)} a step, and " if on_cpu_ns else ""
    return (
        f"{script.path}: nothing that its steps do is predicted: {host}profile {profile} prices what GPUs do, which got"
        " no kernel and no collective; expected tensors on 'cuda', or a CPU's profile such as --profile cpu_local"
    )


def _empty(script: Script, steps: Sequence[int], what: str) -> str:
    return (
        f"{script.path}: {_list_numbers('step', steps)} {what} and called no collective: expected"
        " one mark at the end of each step"
    )


_WAYS = "twinstep.step() marks one where an optimizer does not, or --step-every"


def _how(outcome: Outcome) -> str:
    """Return how a script ended, in words."""
    return str((outcome.seen or {}).get("how", "as it was recorded"))


def _describe_counts(outcome: Outcome) -> str:
    """Return the numbers of a script's optimizer steps, backward passes and calls, in words."""
    seen = outcome.seen or {}
    found = [f"{_times(count, 'step')} of {name}" for name, count in seen.get("optimizers", {}).items()]
    if seen.get("backward"):
        found.append(_times(seen["backward"], "backward pass", "es"))
    calls = list(seen.get("calls", {}).items())
    found += [f"{_times(count, 'call')} of {name}" for name, count in calls[:_MOST_LISTED]]
    if children := seen.get("children"):
        found.append(f"{_times(len(children), 'process', 'es')} that it started ({children[-1]})")
    return _list(found) if found else "no step of an optimizer, no backward pass and no call of torch.distributed"


def _tell_expected(script: Script, outcome: Outcome) -> str:
    seen = outcome.seen or {}
    calls, optimizers = seen.get("calls", {}), seen.get("optimizers", {})
    if seen.get("children") and not optimizers:
        return "expected a script that torchrun starts, one process for each rank, not one that starts its ranks itself"
    if script.step_every:
        return f"expected --step-every = {script.step_every} to mark a step at least twice"
    if optimizers:
        return (
            "expected at least two steps of the first optimizer, as a step runs from one to the next, --step-every once"
            " to predict the first one, or twinstep.step() at the end of each step"
        )
    if seen.get("backward", 0) >= _LEAST:
        return "expected --step-every backward, or twinstep.step() at the end of each step, where no optimizer steps"
    if calls and max(calls.values()) >= _LEAST:
        most = max(calls, key=lambda name: int(calls[name]))
        return f"expected --step-every {most}, or twinstep.step() at the end of each step, where no optimizer steps"
    return (
        "expected arguments (behind the script) and data with which it trains, --step-every forward where it only runs"
        " modules, or twinstep.step() at the end of each step, where no optimizer steps"
    )


def _times(count: int, what: str, more: str = "s") -> str:
    return f"{count:,} {what}{more if count != 1 else ''}"


def _list_numbers(what: str, numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[:_MOST_LISTED]]
    more = [f"{len(numbers) - _MOST_LISTED:,} more"] if len(numbers) > _MOST_LISTED else []
    return f"{what}{'s' if len(numbers) > 1 else ''} {_list([*shown, *more])}"


def _list(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def memory_of(rank: int, peaks: Mapping[str, int], capacity_bytes: int, rank_count: int) -> tuple[MemoryRow, MemoryRow]:
    """Return a rank's memory rows, from peaks in bytes of "memory" (tensors) and "reserved" (by the allocator)."""
    held = peaks.get("memory", 0)
    free = max(0, peaks.get("reserved", 0) - held)
    return (
        MemoryPart("tensors and cuBLAS workspaces", held).row(rank, capacity_bytes, rank_count),
        MemoryPart("free blocks of torch's allocator", free, CACHED).row(rank, capacity_bytes, rank_count),
    )
