"""Values of messages beside their calls: only the source of a message, or a scatter's root, knows if it has any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from scenarios.workloads.script.events.calls import IssueCall
from scenarios.workloads.script.requests import Packed


class Mail:
    """What was sent and not yet received: the n-th message from a source to a target, or part of a scatter, in a group
    is the n-th that the target asks for there, whichever it waits for first.
    """

    def __init__(self) -> None:
        self._sent: dict[Hashable, Packed] = {}
        self._counts = Counter[Hashable]()

    def post(self, call: IssueCall, here: int, members: Sequence[int], number: int) -> Hashable | None:
        """Put a rank's side of a call there; return under what the rank finds what it receives, if it does.

        `number` tells groups of the same `members` apart.
        """
        is_scatter, group = call.verb == "scatter", (tuple(members), number)
        if call.verb == "send":
            self._put((here, call.options["dst"], is_scatter, group), call.inputs[0])
            return None
        for target, packed in zip(members, call.inputs if is_scatter else (), strict=False):  # only the root gives any
            self._put((here, target, is_scatter, group), packed)
        return self._next("received", (call.options["src"], here, is_scatter, group))

    def take(self, key: Hashable) -> Packed:
        """Take what was sent."""
        return self._sent.pop(key)

    def _put(self, way: Hashable, packed: Packed) -> None:
        self._sent[self._next("sent", way)] = packed

    def _next(self, what: str, way: Hashable) -> Hashable:
        self._counts[what, way] += 1
        return way, self._counts[what, way]
