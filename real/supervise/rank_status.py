"""What is known of each rank of a run, and the one sentence when it cannot go on; hearing of them is left to `warden`.

Pure: times are seconds on any one clock, handed in.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# The first bad news may be the consequence of another rank's: wait this long for that one's own.
FIRST_NEWS_S = 0.2
# A rank that lost a connection tells of another's death; that one's end is known to its parent, or to nobody.
SECOND_HAND_S = 2.0


@dataclass(frozen=True, slots=True)
class Waits:
    """A rank stands in `await` of a call of a group. `call` is -1 for a send or recv, whose `ranks` is the peer."""

    what: str
    group: str
    call: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank is: how often it has moved, the calls it has made on each group, what it did last, and waits for."""

    moves: int
    reached: Mapping[str, int]
    last: str
    is_inside: bool
    waits: tuple[Waits, ...] = ()


@dataclass(slots=True)
class Member:
    """What is known of one rank."""

    rank: int
    is_here: bool = False
    is_done: bool = False
    step: int | None = None
    position: Position | None = None
    moved_s: float = 0.0
    failed: str | None = None  # the sentence of its own mistake
    lost: str | None = None  # the sentence about a connection that it lost
    is_cut: bool = False  # its line is closed though it was not done
    exit_code: int | None = None
    news_s: float | None = None

    def where(self) -> str:
        """The step it was in."""
        return "before its first step" if self.step is None else f"in step {self.step}"

    def tell(self, now_s: float) -> None:
        """There is bad news of it, from now on."""
        if self.news_s is None:
            self.news_s = now_s


@dataclass(slots=True)
class Roll:
    """All ranks of a run. `sees_exits`: a parent tells how each process ended, so that a cut line is not the end."""

    size: int
    timeout_s: float
    began_s: float
    sees_exits: bool
    members: list[Member] = field(init=False)

    def __post_init__(self) -> None:
        self.members = [Member(rank, moved_s=self.began_s) for rank in range(self.size)]

    @property
    def is_done(self) -> bool:
        """Whether every rank has played its program to the end, and every process that we see has ended."""
        return all(member.is_done and (member.exit_code == 0 or not self.sees_exits) for member in self.members)

    def hear(self, rank: int, message: Mapping[str, Any], now_s: float) -> None:
        """A message of a rank; see `line` for what it may say."""
        member = self.members[rank]
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

    def see(self, steps: Sequence[int | None], now_s: float) -> None:
        """The step of each rank, as far as it can be seen from here: None is no news."""
        for member, step in zip(self.members, steps, strict=True):
            if step is not None and step != member.step:
                member.step, member.moved_s = step, now_s

    def came(self, rank: int, now_s: float) -> None:
        """Its line is open."""
        self.members[rank].is_here, self.members[rank].moved_s = True, now_s

    def was_cut(self, rank: int, now_s: float) -> None:
        """Its line is closed."""
        member = self.members[rank]
        if not member.is_done:
            member.is_cut = True
            member.tell(now_s)

    def exited(self, rank: int, code: int, now_s: float) -> None:
        """Its process has ended; a signal is a negative code."""
        member = self.members[rank]
        member.exit_code = code
        if code != 0 or not member.is_done:
            member.tell(now_s)

    def verdict(self, now_s: float) -> str | None:
        """Why the run is over before its end, in one sentence; None while it may go on."""
        told = [member for member in self.members if member.news_s is not None]
        if told:
            return self._of_news(told, now_s - min(member.news_s or 0.0 for member in told))
        return self._never_came(now_s) or self._stalled(now_s)

    def _of_news(self, told: list[Member], since_s: float) -> str | None:
        if since_s < FIRST_NEWS_S:
            return None
        causes = [cause for tells in (_killed, _failed, _exited) for cause in map(tells, told) if cause]
        if not self.sees_exits:
            causes += [f"rank {m.rank} was lost {m.where()}" for m in told if m.is_cut and m.lost is None]
        if causes or since_s < SECOND_HAND_S:
            return causes[0] if causes else None
        losers = [member.lost for member in told if member.lost is not None]
        return losers[0] if losers else f"rank {told[0].rank} was lost {told[0].where()}"

    def _never_came(self, now_s: float) -> str | None:
        missing = [member.rank for member in self.members if not member.is_here]
        if not missing or now_s - self.began_s < self.timeout_s:
            return None
        return f"{ranks(missing)} did not come within {self.timeout_s:g} s"

    def _stalled(self, now_s: float) -> str | None:
        """One rank that is late makes all others still; the one to name is still, and waits for nobody."""
        going = [member for member in self.members if not member.is_done]
        if any(not member.is_here for member in self.members):
            return None
        if not any(now_s - member.moved_s >= self.timeout_s for member in going):
            return None
        for member in going:
            for waits in member.position.waits if member.position else ():
                late = self._late(waits)
                if late and not (late[0].position and late[0].position.waits):
                    return self._did_not_reach(late, waits)
        return self._all_wait(going, now_s)

    def _late(self, waits: Waits) -> list[Member]:
        """Who has not made this call; those first that wait for nobody themselves."""
        others = [self.members[rank] for rank in waits.ranks]
        late = [m for m in others if waits.call < 0 or not m.position or _reached(m, waits.group) <= waits.call]
        return sorted(late, key=lambda member: bool(member.position and member.position.waits))

    def _did_not_reach(self, late: list[Member], waits: Waits) -> str:
        named = late[0]
        if named.is_done:
            stands = "it has ended its program"
        elif named.position is None or not named.position.last:
            stands = f"it was last heard of {named.where()}"
        else:
            stands = f"it stands {'in' if named.position.is_inside else 'after'} {named.position.last}"
        call = f" (call {waits.call} of group {waits.group})" if waits.call >= 0 else ""
        return f"rank {named.rank} did not reach {waits.what}{call} within {self.timeout_s:g} s; {stands}"

    def _all_wait(self, going: list[Member], now_s: float) -> str:
        still = [member for member in going if now_s - member.moved_s >= self.timeout_s]
        stands = [
            f"rank {member.rank} in {member.position.waits[0].what if member.position.waits else member.position.last}"
            for member in still
            if member.position and (member.position.waits or member.position.last)
        ]
        where = f": {', '.join(stands)}" if stands else ""
        return f"{ranks([member.rank for member in still])} did not move for {self.timeout_s:g} s{where}"

    def _hear_position(self, member: Member, at: Mapping[str, Any], now_s: float) -> None:
        waits = tuple(Waits(what, group, call, tuple(ranks)) for what, group, call, ranks in at["waits"])
        if member.position is None or member.position.moves != at["moves"]:
            member.moved_s = now_s
        member.position = Position(at["moves"], at["reached"], at["last"], at["inside"], waits)


def ranks(numbers: list[int]) -> str:
    """ "rank 3" or "ranks 1, 2 and 5"."""
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    return f"ranks {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _killed(member: Member) -> str | None:
    if member.exit_code is None or member.exit_code >= 0 or member.failed is not None:
        return None
    return f"rank {member.rank} was killed by {signal.Signals(-member.exit_code).name} {member.where()}"


def _failed(member: Member) -> str | None:
    return member.failed


def _exited(member: Member) -> str | None:
    if member.exit_code is None or member.lost is not None:
        return None
    return f"rank {member.rank} exited with code {member.exit_code} {member.where()}"


def _reached(member: Member, group: str) -> int:
    return member.position.reached.get(group, 0) if member.position else 0
