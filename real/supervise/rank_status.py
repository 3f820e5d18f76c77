"""A table of the status of each rank of a run, and the sentence that says why the run cannot go on.

No I/O: times are arguments, in seconds on any one clock.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

# The first failure reported may be the consequence of another rank's: wait this long for the other rank's report.
FIRST_NEWS_S = 0.2
# A rank's stage in the run: no rank begins before all are ready, nor exits before all have ended.
JOINING, READY, PLAYING, ENDED = range(4)
# Time that ranks may take to load their libraries and find each other; many share a core.
START_S = 300.0
# A rank that lost a connection reports another rank's death; that rank's parent may know the exit code.
SECOND_HAND_S = 2.0


@dataclass(frozen=True, slots=True)
class Waits:
    """A call of a group that a rank waits for. `call` is its index in the group, or -1 for a send or recv with
    `ranks[0]`.
    """

    what: str
    group: str
    call: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A rank's position in its program.

    Attributes:
        moves: a count that grows while the rank makes progress.
        reached: number of calls that the rank has reached, by group.
        last: the operation begun last; `is_inside` says whether it has not ended.
        waits: the calls that the rank waits for.
    """

    step: int | None
    stage: int
    moves: int
    reached: Mapping[str, int]
    last: str
    is_inside: bool
    waits: tuple[Waits, ...] = ()


@dataclass(slots=True)
class RankStatus:
    """The status of one rank."""

    rank: int
    is_here: bool = False
    is_done: bool = False
    step: int | None = None
    position: Position | None = None
    moved_s: float = 0.0
    heard_s: float = 0.0
    is_silent: bool = False  # not heard of while others are, so its position may be old
    failed: str | None = None  # the sentence of its own mistake
    lost: str | None = None  # the sentence about a lost connection
    is_cut: bool = False  # its control channel closed before it was done
    exit_code: int | None = None
    news_s: float | None = None

    @property
    def waits(self) -> tuple[Waits, ...]:
        """The calls that the rank waits for; empty if it has begun a step since its last report, or is silent."""
        return self.position.waits if self._is_known and self.position else ()

    @property
    def last(self) -> str:
        """The operation begun last, in the current step or before; "" if unknown."""
        return self.position.last if self._is_known and self.position else ""

    @property
    def _is_known(self) -> bool:
        return self.position is not None and self.position.step == self.step and not self.is_silent

    def note_news(self, now_s: float) -> None:
        """Note the time of the first bad news of this rank."""
        if self.news_s is None:
            self.news_s = now_s


@dataclass(slots=True)
class RankStatusTable:
    """A table of the status of all ranks; `start_s` limits their start, then `timeout_s` the time without progress.

    `sees_exits`: exit codes will be reported, so a closed channel alone is no verdict.
    """

    size: int
    timeout_s: float
    began_s: float
    sees_exits: bool
    start_s: float = START_S
    members: list[RankStatus] = field(init=False)
    _is_begun: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.members = [RankStatus(rank, moved_s=self.began_s) for rank in range(self.size)]

    @property
    def is_done(self) -> bool:
        """Whether every rank has run its program to the end, and every watched process has ended."""
        return all(member.is_done and (member.exit_code == 0 or not self.sees_exits) for member in self.members)

    def hear(self, rank: int, message: Mapping[str, Any], now_s: float) -> None:
        """Update the table with a rank's message (see `control_channel`)."""
        member = self.members[rank]
        member.heard_s = now_s
        if message.get("step") is not None:
            member.step, member.moved_s = message["step"], now_s
        if "at" in message:
            self._hear_position(member, message["at"], now_s)
        if "failed" in message:
            member.failed = message["failed"]
            member.note_news(now_s)
        if "lost" in message:
            member.lost = message["lost"]
            member.note_news(now_s)
        member.is_done = member.is_done or "bye" in message
        self._note_begin(now_s)

    def see(self, steps: Sequence[int | None], now_s: float) -> None:
        """Update the step of each rank from shared memory; None: unknown."""
        for member, step in zip(self.members, steps, strict=True):
            if step is not None and step != member.step:
                member.step, member.moved_s = step, now_s
        self._note_begin(now_s)

    def came(self, rank: int, now_s: float) -> None:
        """Note that a rank's control channel is open."""
        member = self.members[rank]
        member.is_here, member.moved_s, member.heard_s = True, now_s, now_s

    def was_cut(self, rank: int, now_s: float) -> None:
        """Note that a rank's control channel has closed."""
        member = self.members[rank]
        if not member.is_done:
            member.is_cut = True
            member.note_news(now_s)

    def note_exit(self, rank: int, code: int, now_s: float) -> None:
        """Note that a rank's process has ended; -n stands for signal n."""
        member = self.members[rank]
        member.exit_code = code
        if code != 0 or not member.is_done:
            member.note_news(now_s)

    def verdict(self, now_s: float) -> str | None:
        """Return why the run cannot go on, in one sentence; None while it can."""
        with_news = [member for member in self.members if member.news_s is not None]
        if with_news:
            return self._verdict_of_news(with_news, now_s - min(member.news_s or 0.0 for member in with_news))
        return self._never_came(now_s) or self._name_stalled(now_s)

    def _verdict_of_news(self, with_news: list[RankStatus], since_s: float) -> str | None:
        if since_s < FIRST_NEWS_S:
            return None
        # Ordered by how direct the evidence is: a signal, an own report, an exit code.
        causes = [
            cause
            for tells in (_tell_signal, attrgetter("failed"), _tell_exit)
            for cause in map(tells, with_news)
            if cause
        ]
        if not self.sees_exits:
            causes += [f"rank {m.rank} was lost {where(m.step)}" for m in with_news if m.is_cut and m.lost is None]
        if causes or since_s < SECOND_HAND_S:
            return _merge_causes(causes) if causes else None
        losers = [member.lost for member in with_news if member.lost is not None]
        return losers[0] if losers else f"rank {with_news[0].rank} was lost {where(with_news[0].step)}"

    def _never_came(self, now_s: float) -> str | None:
        missing = [member.rank for member in self.members if not member.is_here]
        if not missing or now_s - self.began_s < self.start_s:
            return None
        return f"{ranks(missing)} did not come within {self.start_s:g} s"

    def _name_stalled(self, now_s: float) -> str | None:
        """Name the stalled rank: it does not move and waits for no rank, while others wait for it."""
        going = [member for member in self.members if not member.is_done]
        # `_never_came` has its own time for these; the others wait for them, which is no stall.
        if any(not member.is_here for member in self.members):
            return None
        within_s = self._within_s
        if not any(now_s - member.moved_s >= within_s for member in going):
            return None
        silent = [member for member in going if now_s - member.heard_s >= within_s / 2]  # five messages, at least
        for member in going:
            member.is_silent = member in silent and len(silent) < len(going)
        for member in going:
            for waits in member.waits:
                late = self._late(waits, _stage(member))
                if late and not late[0].waits:
                    return self._did_not_reach(late[0], waits)
        return self._all_wait(going, now_s)

    def _note_begin(self, now_s: float) -> None:
        """Restart all stall clocks once one rank runs: all begin together, and a rank may have waited long for the last
        one.
        """
        if not self._is_begun and any(member.step is not None or _stage(member) >= PLAYING for member in self.members):
            self._is_begun = True
            for member in self.members:
                member.moved_s = now_s

    @property
    def _within_s(self) -> float:
        """The present limit of the time without progress, in s."""
        return self.timeout_s if self._is_begun else max(self.start_s, self.timeout_s)

    def _late(self, waits: Waits, stage: int) -> list[RankStatus]:
        """Return the ranks that have not made this call, or are not at this stage; first the ranks that wait for no
        rank.
        """
        others = [self.members[rank] for rank in waits.ranks]
        if not waits.group:
            late = [m for m in others if not m.is_done and _stage(m) < stage]
        else:
            reached = [m.position.reached.get(waits.group, 0) if m.position else 0 for m in others]
            late = [m for m, count in zip(others, reached, strict=True) if waits.call < 0 or count <= waits.call]
        return sorted(late, key=lambda member: bool(member.waits))

    def _did_not_reach(self, named: RankStatus, waits: Waits) -> str:
        if named.is_done:
            stands = "it has ended its program"
        elif named.position is None or not named.last:
            stands = f"it was last heard of {where(named.step)}"
        else:
            stands = f"it stands {'in' if named.position.is_inside else 'after'} {named.last}{_and_step(named)}"
        call = f" (call {waits.call} of group {waits.group})" if waits.call >= 0 else ""
        return f"rank {named.rank} did not reach {waits.what}{call} within {self._within_s:g} s; {stands}"

    def _all_wait(self, going: list[RankStatus], now_s: float) -> str:
        still = [member for member in going if member.is_silent]
        still = still or [member for member in going if now_s - member.moved_s >= self._within_s]
        stands = ", ".join(f"rank {member.rank} {_stands(member)}" for member in still)
        return f"{ranks([member.rank for member in still])} did not move for {self._within_s:g} s: {stands}"

    def _hear_position(self, member: RankStatus, at: Mapping[str, Any], now_s: float) -> None:
        waits = tuple(Waits(what, group, call, tuple(ranks)) for what, group, call, ranks in at["waits"])
        # Only progress counts as a move: a stalled rank reports its position, too.
        if member.position is None or (member.position.stage, member.position.moves) != (at["stage"], at["moves"]):
            member.moved_s = now_s
        member.position = Position(at["step"], at["stage"], at["moves"], at["reached"], at["last"], at["inside"], waits)


def where(step: int | None) -> str:
    """Return the step that a rank was in, in words."""
    return "before its first step" if step is None else f"in step {step}"


def ranks(numbers: list[int]) -> str:
    """Return "rank 3" or "ranks 1, 2 and 5"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _merge_causes(causes: list[str]) -> str:
    """Return the first sentence, with all ranks that report the same cause."""
    own = _RANK_SENTENCE.match(causes[0])
    if own is None:
        return causes[0]
    same_cause = [match for match in map(_RANK_SENTENCE.match, causes) if match is not None and match[2] == own[2]]
    return f"{ranks([int(match[1]) for match in same_cause])}: {own[2]}"


_RANK_SENTENCE = re.compile(r"rank (\d+): (.*)", re.DOTALL)


def _tell_signal(member: RankStatus) -> str | None:
    if member.exit_code is None or member.exit_code >= 0 or member.failed is not None:
        return None
    return f"rank {member.rank} was killed by {signal.Signals(-member.exit_code).name} {where(member.step)}"


def _tell_exit(member: RankStatus) -> str | None:
    if member.exit_code is None or member.lost is not None:
        return None
    return f"rank {member.rank} exited with code {member.exit_code} {where(member.step)}"


def _stage(member: RankStatus) -> int:
    return member.position.stage if member.position else JOINING


def _stands(member: RankStatus) -> str:
    """Return in words where a rank is."""
    last = member.waits[0].what if member.waits else member.last
    return f"in {last}{_and_step(member)}" if last else where(member.step)


def _and_step(member: RankStatus) -> str:
    """Return the rank's step in words; "" if the sentence before names the step already."""
    stands = member.waits[0].what if member.waits else member.last
    return "" if member.step is None or stands.endswith(where(member.step)) else f", {where(member.step)}"
