"""RankStatusTable: what is known of each rank of a run, and the sentence that says why it cannot go on.

No I/O: times are arguments, in seconds on any one clock.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

# The first failure reported may be the consequence of another rank's: wait this long for that one's own report.
FIRST_NEWS_S = 0.2
# How far a rank is with the run: nobody begins before all are ready, nor leaves before all have ended.
JOINING, READY, PLAYING, ENDED = range(4)
# How long ranks may take to start: to load what they need, and to find each other; many share a core.
START_S = 300.0
# A rank that lost a connection tells of another's death; that one's end is known to its parent, or to nobody.
SECOND_HAND_S = 2.0


@dataclass(frozen=True, slots=True)
class Waits:
    """A rank awaits a call of a group. `call` is its index there, or -1 for a send or recv, its peer in `ranks`."""

    what: str
    group: str
    call: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A rank's position: its step, stage, operations, calls of each group, last operation, waits."""

    step: int | None
    stage: int
    moves: int
    reached: Mapping[str, int]
    last: str
    is_inside: bool
    waits: tuple[Waits, ...] = ()


@dataclass(slots=True)
class RankStatus:
    """What is known of one rank."""

    rank: int
    is_here: bool = False
    is_done: bool = False
    step: int | None = None
    position: Position | None = None
    moved_s: float = 0.0
    heard_s: float = 0.0
    is_silent: bool = False  # it is not heard of while others are, so its position may be of long ago
    failed: str | None = None  # the sentence of its own mistake
    lost: str | None = None  # the sentence about a connection that it lost
    is_cut: bool = False  # its control channel closed before it was done
    exit_code: int | None = None
    news_s: float | None = None

    @property
    def waits(self) -> tuple[Waits, ...]:
        """What it waits for; nothing is known of that if it has begun a step since it was heard of, or is silent."""
        return self.position.waits if self._is_known and self.position else ()

    @property
    def last(self) -> str:
        """What it has begun last, in its present step or before; "" if that is not known."""
        return self.position.last if self._is_known and self.position else ""

    @property
    def _is_known(self) -> bool:
        return self.position is not None and self.position.step == self.step and not self.is_silent

    def tell(self, now_s: float) -> None:
        """Note when the first bad news of this rank came."""
        if self.news_s is None:
            self.news_s = now_s


@dataclass(slots=True)
class RankStatusTable:
    """The status of all ranks, which may take `start_s` until all of them play, and then stand still `timeout_s`.

    `sees_exits`: exit codes will be reported, so a closed channel is no verdict.
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
        """Whether every rank has run its program to the end, and every process that is watched has ended."""
        return all(member.is_done and (member.exit_code == 0 or not self.sees_exits) for member in self.members)

    def hear(self, rank: int, message: Mapping[str, Any], now_s: float) -> None:
        """Take in a message of a rank (see `control_channel`)."""
        member = self.members[rank]
        member.heard_s = now_s
        if message.get("step") is not None:
            member.step, member.moved_s = message["step"], now_s
        if "at" in message:
            self._hear_position(member, message["at"], now_s)
        if "failed" in message:
            member.failed = message["failed"]
            member.tell(now_s)
        if "lost" in message:
            member.lost = message["lost"]
            member.tell(now_s)
        member.is_done = member.is_done or "bye" in message
        self._see_whether_begun(now_s)

    def see(self, steps: Sequence[int | None], now_s: float) -> None:
        """Take in the step of each rank from shared memory; None: unknown."""
        for member, step in zip(self.members, steps, strict=True):
            if step is not None and step != member.step:
                member.step, member.moved_s = step, now_s
        self._see_whether_begun(now_s)

    def came(self, rank: int, now_s: float) -> None:
        """Note that a rank's control channel is open."""
        member = self.members[rank]
        member.is_here, member.moved_s, member.heard_s = True, now_s, now_s

    def was_cut(self, rank: int, now_s: float) -> None:
        """Note that a rank's control channel has closed."""
        member = self.members[rank]
        if not member.is_done:
            member.is_cut = True
            member.tell(now_s)

    def exited(self, rank: int, code: int, now_s: float) -> None:
        """Note that a rank's process has ended; a signal is a negative code."""
        member = self.members[rank]
        member.exit_code = code
        if code != 0 or not member.is_done:
            member.tell(now_s)

    def verdict(self, now_s: float) -> str | None:
        """Why the run cannot go on, in one sentence; None while it can."""
        told = [member for member in self.members if member.news_s is not None]
        if told:
            return self._of_news(told, now_s - min(member.news_s or 0.0 for member in told))
        return self._never_came(now_s) or self._stalled(now_s)

    def _of_news(self, told: list[RankStatus], since_s: float) -> str | None:
        if since_s < FIRST_NEWS_S:
            return None
        causes = [cause for tells in (_killed, attrgetter("failed"), _exited) for cause in map(tells, told) if cause]
        if not self.sees_exits:
            causes += [f"rank {m.rank} was lost {where(m.step)}" for m in told if m.is_cut and m.lost is None]
        if causes or since_s < SECOND_HAND_S:
            return _of_all(causes) if causes else None
        losers = [member.lost for member in told if member.lost is not None]
        return losers[0] if losers else f"rank {told[0].rank} was lost {where(told[0].step)}"

    def _never_came(self, now_s: float) -> str | None:
        missing = [member.rank for member in self.members if not member.is_here]
        if not missing or now_s - self.began_s < self.start_s:
            return None
        return f"{ranks(missing)} did not come within {self.start_s:g} s"

    def _stalled(self, now_s: float) -> str | None:
        """The stalled rank to name: one that does not move and waits for nobody, while others wait for it."""
        going = [member for member in self.members if not member.is_done]
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

    def _see_whether_begun(self, now_s: float) -> None:
        """All begin together, so if one plays, all have started; what some waited for the last to be ready is over."""
        if not self._is_begun and any(member.step is not None or _stage(member) >= PLAYING for member in self.members):
            self._is_begun = True
            for member in self.members:
                member.moved_s = now_s

    @property
    def _within_s(self) -> float:
        """How long a rank may stand still now."""
        return self.timeout_s if self._is_begun else max(self.start_s, self.timeout_s)

    def _late(self, waits: Waits, stage: int) -> list[RankStatus]:
        """The ranks that have not made this call, or are not at this stage; first those that wait for nobody."""
        others = [self.members[rank] for rank in waits.ranks]
        if not waits.group:
            late = [m for m in others if not m.is_done and _stage(m) < stage]
        else:
            late = [m for m in others if waits.call < 0 or not m.position or _reached(m, waits.group) <= waits.call]
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
        if member.position is None or (member.position.stage, member.position.moves) != (at["stage"], at["moves"]):
            member.moved_s = now_s
        member.position = Position(at["step"], at["stage"], at["moves"], at["reached"], at["last"], at["inside"], waits)


def where(step: int | None) -> str:
    """The step that a rank was in, in words."""
    return "before its first step" if step is None else f"in step {step}"


def ranks(numbers: list[int]) -> str:
    """ "rank 3" or "ranks 1, 2 and 5"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _of_all(causes: list[str]) -> str:
    """Return the first sentence, which names all ranks that say the same."""
    own = _OF_RANK.match(causes[0])
    if own is None:
        return causes[0]
    alike = [found for found in map(_OF_RANK.match, causes) if found is not None and found[2] == own[2]]
    return f"{ranks([int(found[1]) for found in alike])}: {own[2]}"


_OF_RANK = re.compile(r"rank (\d+): (.*)", re.DOTALL)


def _killed(member: RankStatus) -> str | None:
    if member.exit_code is None or member.exit_code >= 0 or member.failed is not None:
        return None
    return f"rank {member.rank} was killed by {signal.Signals(-member.exit_code).name} {where(member.step)}"


def _exited(member: RankStatus) -> str | None:
    if member.exit_code is None or member.lost is not None:
        return None
    return f"rank {member.rank} exited with code {member.exit_code} {where(member.step)}"


def _stage(member: RankStatus) -> int:
    return member.position.stage if member.position else JOINING


def _stands(member: RankStatus) -> str:
    """Where a rank is."""
    last = member.waits[0].what if member.waits else member.last
    return f"in {last}{_and_step(member)}" if last else where(member.step)


def _and_step(member: RankStatus) -> str:
    """The step that a rank is in, where what it stands in or after does not say so."""
    stands = member.waits[0].what if member.waits else member.last
    return "" if member.step is None or stands.endswith(where(member.step)) else f", {where(member.step)}"


def _reached(member: RankStatus, group: str) -> int:
    return member.position.reached.get(group, 0) if member.position else 0
