"""Matching of ranks: in collectives, and in the set-up of groups and streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.seam.calls import SET_UP_MISTAKES, Call, SetUp, set_up_disagreement
from scenarios.seam.collectives import deliver, disagreement
from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group
from scenarios.seam.payload import Payload, Payloads, Reduce
from sim.clock import Signal


class Rendezvous:
    """A collective: the `index`-th of its group (or of a pair, for send and recv).

    `calls` holds the members' calls as the transport carries them, by group rank. `formula_ns` is the library's own
    time estimate, which the transport may set; else -1.
    """

    __slots__ = (
        *("_forget", "_made", "_payloads"),
        *("calls", "formula_ns", "group", "index", "is_complete", "is_wrong", "through"),
    )

    def __init__(self, group: Group, index: int, reduce: Reduce, forget: Callable[[Rendezvous], None]) -> None:
        """Store `forget`, called when all members have entered with calls that fit."""
        self.group = group
        self.index = index
        self.calls: dict[int, Call] = {}
        self._made: dict[int, Call] = {}
        self.through: dict[int, Signal[None]] = {}
        self.is_complete = self.is_wrong = False
        self.formula_ns = -1
        self._forget = forget
        self._payloads = Payloads(reduce)

    def enter(
        self, member: int, call: Call, payload: Payload, through: Signal[None], travels: Call | None = None
    ) -> None:
        """Enter as `member` (a group rank); `through` fires at its end, or fails if the calls do not fit.

        If calls do not fit, nothing is delivered, and all members fail when the last of them has entered. `travels`, if
        given, is carried in place of the call.
        """
        self._made[member] = call
        self.calls[member] = travels or call
        self._payloads[member] = payload
        self.through[member] = through
        # Compared with one call, in constant time; `_all_here` compares all of them.
        first = next(iter(self._made))
        if first != member or call.mistake:
            self.is_wrong = self.is_wrong or disagreement({first: self._made[first], member: call}) is not None
        if len(self.calls) == len(self.group.ranks):
            self._all_here()

    def sentence(self) -> str | None:
        """Return an error message if the calls of the members that have entered contradict each other; else None."""
        return disagreement(self._made)

    @property
    def in_order(self) -> list[Call]:
        """Every member's call by group rank, once all have entered."""
        return [self.calls[member] for member in range(len(self.group.ranks))]

    @property
    def missing(self) -> list[int]:
        """Global ranks that have not entered."""
        return [rank for member, rank in enumerate(self.group.ranks) if member not in self.calls]

    def finish(self, member: int) -> None:
        """Fill the member's outputs and end its part."""
        if self.is_wrong or self.through[member].done:
            return
        deliver(self._made[member], self._payloads)
        self.through[member].fire()
        # Outputs of the other members are filled from the same payloads.
        if len(self.through) == len(self.group.ranks) and all(signal.done for signal in self.through.values()):
            self._payloads.clear()

    def finish_all(self) -> None:
        """Finish all members, in group order."""
        for member in range(len(self.group.ranks)):
            self.finish(member)

    def _all_here(self) -> None:
        sentence = self.sentence()
        self.is_wrong = sentence is not None
        if sentence is None:
            self.is_complete = True
            self._forget(self)
            return
        self._payloads.clear()
        # In the order of entry, so that programs go on in the same order in every run.
        for signal in self.through.values():
            if not signal.done:
                signal.fire(error=CollectiveError(sentence))


class GroupRendezvous:
    """A `new_group` or `stream` call of all ranks: the `index`-th of each rank, on any stream."""

    __slots__ = ("_kept", "_ranks", "_set_ups", "sentence")

    def __init__(self, ranks: Sequence[int]) -> None:
        """Store `ranks`, all that are simulated."""
        self._ranks = ranks
        self._set_ups: dict[int, SetUp] = {}
        # Equal set-ups share one object: a list of ranks on every rank would take memory ~ ranks^2.
        self._kept: dict[SetUp, SetUp] = {}
        self.sentence: str | None = None

    def enter(self, rank: int, check: Callable[[], SetUp]) -> SetUp:
        """Return a rank's checked call; does not wait: the last rank to enter learns at once if calls differ.

        Raises:
            TypeError, ValueError, ProgramError: raised by `check`.
            CollectiveError: all have entered, and calls differ or another rank's was refused.
        """
        try:
            own = check()
        except SET_UP_MISTAKES as mistake:
            self._keep(rank, SetUp(mistake=str(mistake)))
            raise
        own = self._keep(rank, own)
        self.check()
        return own

    def check(self) -> None:
        """Raise CollectiveError if all have entered and their calls differ."""
        if self.sentence is not None:
            raise CollectiveError(self.sentence)

    def check_at_end(self, *, has_ended: bool) -> None:
        """Raise if set-up calls explain why programs are stuck or, if all have ended, would be stuck on real ranks.

        Raises:
            CollectiveError: of the ranks that entered, one makes another call than the others; or one never entered.
        """
        if not has_ended:
            self.check()
        if not self._set_ups:
            return
        sentence, first = set_up_disagreement(self._set_ups), min(self._set_ups)
        if sentence is None and has_ended:
            missing = next(rank for rank in self._ranks if rank not in self._set_ups)
            sentence = f"rank {first} calls {self._set_ups[first]}, but rank {missing} never did"
        if sentence is not None:
            raise CollectiveError(sentence)

    def _keep(self, rank: int, own: SetUp) -> SetUp:
        own = self._set_ups[rank] = self._kept.setdefault(own, own)
        if len(self._set_ups) == len(self._ranks):
            self.sentence = set_up_disagreement(self._set_ups) if len(self._kept) > 1 or own.mistake else None
            self._set_ups.clear()
        return own
