"""The phases of a job and the seconds lost by cause, from the job's journal. Pure functions of events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from real.job.journal import Event

# Causes of lost time, in the order in which an interruption has them.
CAUSES = ("checkpoint", "rework", "detection", "replacement", "restart", "restore")
_S = 1e9


@dataclass(frozen=True, slots=True)
class JournalSpan:
    """A stretch of the job: seconds since its first step began, what happened ("training" or a cause), and why."""

    begin_s: float
    end_s: float
    what: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """A kill as it happened: its time, its target, and the name and effect of its kind."""

    at_s: float
    target: str
    kind: str
    loses_host: bool


@dataclass(slots=True, kw_only=True)
class JobTimes:
    """The times of a job that has ended.

    Attributes:
        seconds: from its first step's begin to the end of its last checkpoint.
        lost_s: seconds by cause.
        step_s: seconds of each step that counts: the slowest rank's.
        checkpoint_s: by number of steps, the seconds in which ranks stood still for a checkpoint that counts.
        kills: what was killed.
        again: number of steps that were done again.
        spans: what happened when.
        parts: for each kill, seconds of what restart and replacement consist of, by name.
    """

    seconds: float
    lost_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    step_s: list[float] = field(default_factory=list)
    checkpoint_s: dict[int, float] = field(default_factory=dict)
    kills: list[Killed] = field(default_factory=list)
    again: int = 0
    spans: list[JournalSpan] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)


@dataclass(slots=True)
class _Attempt:
    """One start of all ranks: when all of them had joined and loaded, and what they did (in ns)."""

    number: int
    started: dict[str, int] = field(default_factory=dict)
    joined: dict[str, int] = field(default_factory=dict)
    restored: dict[str, int] = field(default_factory=dict)
    first: int = 0  # steps that the loaded checkpoint has
    steps: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    saved: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def is_whole(self, size: int) -> bool:
        """Whether all ranks have loaded the checkpoint."""
        return len(self.restored) == size

    @property
    def begin_ns(self) -> int:
        """The time at which the first step could begin, in ns."""
        return max(self.restored.values())


def times_of(events: Sequence[Event], size: int) -> JobTimes:
    """Return the times of a job of `size` ranks that ran to its end."""
    attempts = [one for one in _attempts(events) if one.is_whole(size)]
    kills = [event for event in events if event["what"] == "kill"]
    begin_ns, end_ns = attempts[0].begin_ns, max(end for _, end in _last_saved(attempts[-1]))
    found = JobTimes(seconds=(end_ns - begin_ns) / _S)
    for kill in kills:
        at_s, is_host = (kill["ns"] - begin_ns) / _S, kill["target"].startswith("host")
        found.kills.append(Killed(at_s=at_s, target=kill["target"], kind=kill["kind"], loses_host=is_host))
    for index, attempt in enumerate(attempts):
        is_last = index == len(attempts) - 1
        until_ns = end_ns if is_last else _first_kill(kills, attempt.begin_ns)
        counts_to = max(attempt.saved, default=attempt.first) if is_last else attempts[index + 1].first
        _count(found, attempt, until_ns, counts_to, begin_ns)
        if not is_last:
            _recover(found, events, (until_ns, attempts[index + 1]), kills, begin_ns)
    return found


def _first_kill(kills: Iterable[Event], after_ns: int) -> int:
    return min(int(kill["ns"]) for kill in kills if kill["ns"] > after_ns)


def _last_saved(attempt: _Attempt) -> list[tuple[int, int]]:
    return attempt.saved[max(attempt.saved)]


def _attempts(events: Iterable[Event]) -> list[_Attempt]:
    """Return the starts of ranks, in order; a rank's events belong to its last start."""
    found: dict[int, _Attempt] = {}
    of: dict[str, _Attempt] = {}
    for event in events:
        by, what, ns = event["by"], event["what"], event["ns"]
        if what == "started":
            number = event["attempt"]
            of[by] = found.setdefault(number, _Attempt(number))
            of[by].started[by] = ns
        elif what == "joined":
            of[by].joined[by] = ns
        elif what == "restored":
            of[by].restored[by], of[by].first = ns, event["step"]
        elif what == "step":
            of[by].steps[event["step"]].append((event["began_ns"], ns))
        elif what == "saved":
            of[by].saved[event["step"]].append((event["began_ns"], ns))
    return [found[number] for number in sorted(found)]


def _count(found: JobTimes, attempt: _Attempt, until_ns: int, counts_to: int, zero_ns: int) -> None:
    """Add an attempt's steps and checkpoints that count, which end with step `counts_to`; the rest is rework."""
    safe_ns = attempt.begin_ns
    for step, ranks in attempt.saved.items():
        if step <= counts_to:
            began_ns, ended_ns = max(began for began, _ in ranks), max(end for _, end in ranks)
            safe_ns = max(safe_ns, ended_ns)
            found.checkpoint_s[step] = (ended_ns - began_ns) / _S
            found.lost_s["checkpoint"] += (ended_ns - began_ns) / _S
            _add(found, began_ns, ended_ns, "checkpoint", zero_ns, f"after step {step - 1}")
    for step, ranks in attempt.steps.items():
        if step < counts_to:
            found.step_s.append((max(end for _, end in ranks) - max(began for began, _ in ranks)) / _S)
        else:
            found.again += 1
    _add(found, attempt.begin_ns, safe_ns, "training", zero_ns)
    if until_ns > safe_ns:
        found.lost_s["rework"] += (until_ns - safe_ns) / _S
        _add(found, safe_ns, until_ns, "rework", zero_ns, f"since step {counts_to}")


def _recover(
    found: JobTimes, events: Iterable[Event], of: tuple[int, _Attempt], kills: Sequence[Event], zero_ns: int
) -> None:
    """Add the time from a kill to the begin of the next attempt; a further kill begins a recovery anew."""
    at_ns, after = of
    inside = [kill for kill in kills if at_ns <= kill["ns"] < after.begin_ns]
    for kill, end_ns in zip(inside, [*(each["ns"] for each in inside[1:]), after.begin_ns], strict=True):
        is_host = kill["target"].startswith("host")
        later = [event for event in events if kill["ns"] < event["ns"] < end_ns]
        noticed_ns = max((event["ns"] for event in later if event["what"] == "noticed"), default=end_ns)
        formed_ns = max((event["ns"] for event in later if event["what"] == "formed"), default=end_ns)
        joined_ns = min(max(after.joined.values()), end_ns)
        started_ns = min(max(after.started.values()), end_ns)
        marks = {
            "detection": (kill["ns"], noticed_ns),
            "replacement": (noticed_ns, formed_ns if is_host else noticed_ns),
            "restart": (formed_ns if is_host else noticed_ns, joined_ns),
            "restore": (joined_ns, end_ns),
        }
        for cause, (begin, end) in marks.items():
            if end > begin:
                found.lost_s[cause] += (end - begin) / _S
                _add(found, begin, end, cause, zero_ns, kill["target"])
        found.parts.append(
            {
                "detection": (noticed_ns - kill["ns"]) / _S,
                "formed": (formed_ns - noticed_ns) / _S,
                "start": (started_ns - formed_ns) / _S,
                "setup": (joined_ns - started_ns) / _S,
                "restore": (end_ns - joined_ns) / _S,
            }
        )


def _add(found: JobTimes, begin_ns: int, end_ns: int, what: str, zero_ns: int, why: str = "") -> None:
    if end_ns > begin_ns:
        found.spans.append(JournalSpan((begin_ns - zero_ns) / _S, (end_ns - zero_ns) / _S, what, why))
