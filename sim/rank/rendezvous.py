"""Where the members of one collective meet: who has entered, with which call, and who is through."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.seam.calls import Call
from scenarios.seam.collectives import deliver, disagreement
from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group
from scenarios.seam.payload import Payload, Payloads, Reduce
from sim.clock import Signal


class Rendezvous:
    """One collective: the `index`-th of its group (or of a pair, for send and recv).

    `formula_ns` is the library's own figure for it, which the transport may set; -1 without one.
    """

    __slots__ = ("_forget", "_payloads", "calls", "formula_ns", "group", "index", "is_complete", "is_wrong", "through")

    def __init__(self, group: Group, index: int, reduce: Reduce, forget: Callable[[Rendezvous], None]) -> None:
        """`forget` is called when all members have entered, with calls that fit."""
        self.group = group
        self.index = index
        self.calls: dict[int, Call] = {}
        self.through: dict[int, Signal[None]] = {}
        self.is_complete = self.is_wrong = False
        self.formula_ns = -1
        self._forget = forget
        self._payloads = Payloads(reduce)

    def enter(self, member: int, call: Call, payload: Payload, through: Signal[None]) -> None:
        """A member (a group rank) is here; `through` is fired when it is through, or if the calls do not fit.

        Of calls that do not fit nothing more is delivered, and all members are told when the last of them is here.
        """
        self.calls[member] = call
        self._payloads[member] = payload
        self.through[member] = through
        first = next(iter(self.calls))
        if first != member or call.mistake:
            self.is_wrong = self.is_wrong or disagreement({first: self.calls[first], member: call}) is not None
        if len(self.calls) == len(self.group.ranks):
            self._all_here()

    def sentence(self) -> str | None:
        """What is wrong with the calls of those who are here."""
        return disagreement(self.calls)

    @property
    def in_order(self) -> list[Call]:
        """Every member's call by group rank, once everyone has entered."""
        return [self.calls[member] for member in range(len(self.group.ranks))]

    @property
    def missing(self) -> list[int]:
        """The global ranks that have not entered."""
        return [rank for member, rank in enumerate(self.group.ranks) if member not in self.calls]

    def finish(self, member: int) -> None:
        """This member is through: its outputs hold what they should."""
        if self.is_wrong or self.through[member].done:
            return
        deliver(self.calls[member], self._payloads)
        self.through[member].fire()
        if len(self.through) == len(self.group.ranks) and all(signal.done for signal in self.through.values()):
            self._payloads.clear()

    def finish_all(self) -> None:
        """Everyone is through, in group order."""
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
        for signal in self.through.values():
            if not signal.done:
                signal.fire(error=CollectiveError(sentence))
