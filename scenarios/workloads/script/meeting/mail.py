"""Values of messages and scatters, passed outside the calls: only the sender, or a scatter's root, has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from scenarios.workloads.recording.events.calls import IssueCall
from scenarios.workloads.recording.packed import Packed


class Mail:
    """Messages that were sent and not yet received.

    The n-th message (or scatter part) from a source to a target in a group matches the target's n-th receive from that
    source, in the order of issue, not of waiting.
    """

    def __init__(self) -> None:
        self._sent: dict[Hashable, Packed] = {}
        self._counts = Counter[Hashable]()

    def post(self, call: IssueCall, here: int, members: Sequence[int], number: int) -> Hashable | None:
        """Store what a rank sends by a call; return the key for `take` of what the rank receives, None for a send.

        Args:
            call: a send, receive or scatter.
            here: the rank that issued the call.
            members: the ranks of the call's group.
            number: distinguishes groups of identical `members`.
        """
        is_scatter, group = call.verb == "scatter", (tuple(members), number)
        if call.verb == "send":
            self._put((here, call.options["dst"], is_scatter, group), call.inputs[0])
            return None
        for target, packed in zip(members, call.inputs if is_scatter else (), strict=False):  # only the root has inputs
            self._put((here, target, is_scatter, group), packed)
        return self._next("received", (call.options["src"], here, is_scatter, group))

    def take(self, key: Hashable) -> Packed:
        """Remove and return the tensor sent under a key."""
        return self._sent.pop(key)

    def _put(self, way: Hashable, packed: Packed) -> None:
        self._sent[self._next("sent", way)] = packed

    def _next(self, what: str, way: Hashable) -> Hashable:
        self._counts[what, way] += 1
        return way, self._counts[what, way]
