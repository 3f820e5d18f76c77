"""Where the members of one collective meet: who has entered, with which call, and who is through."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.seam.calls import Call, disagreement
from scenarios.seam.errors import CollectiveError
from scenarios.seam.rank import Group
from sim.clock import Signal
from sim.hosts.cores import Thread
from sim.rank.payload import Payload, Payloads, deliver
from sim.rank.reduction import Reduce


class Meeting:
    """One collective: the `index`-th of its group (or of a pair, for send and recv).

    `formula_ns` is the library's own figure for it, which the transport may set; -1 without one.
    """

    __slots__ = ("_payloads", "calls", "everyone", "formula_ns", "group", "index", "is_wrong", "through")

    def __init__(self, group: Group, index: int, reduce: Reduce) -> None:
        self.group = group
        self.index = index
        self.calls: dict[int, Call] = {}
        self.through: dict[int, Signal[None]] = {}
        self.everyone: Signal[None] = Signal()
        self.is_wrong = False
        self.formula_ns = -1
        self._payloads = Payloads(reduce)

    def enter(self, member: int, call: Call, payload: Payload) -> Signal[None]:
        """A member (a group rank) is here; the signal says when it is through, or that the calls do not fit.

        Of calls that do not fit nothing more is delivered, and all members are told when the last of them is here.
        """
        self.calls[member] = call
        self._payloads[member] = payload
        signal = self.through[member] = Signal()
        first = next(iter(self.calls))
        self.is_wrong = self.is_wrong or disagreement({first: self.calls[first], member: call}) is not None
        if len(self.calls) == len(self.group.ranks):
            self._all_here()
        return signal

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
        deliver(member, self.calls, self._payloads)
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
            self.everyone.fire()
            return
        self._payloads.clear()
        for signal in self.through.values():
            if not signal.done:
                signal.fire(error=CollectiveError(sentence))


# How a library's collectives take time: told of each member that enters, and in which thread of a host that is
# modelled, it lets each finish in the end.
Transport = Callable[[Meeting, int, Thread | None], None]
