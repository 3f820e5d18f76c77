"""Values of messages beside their calls: only the source of a message, or a scatter's root, knows if it has any."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

from scenarios.workloads.script.requests import Collective, Packed


class Mail:
    """What was sent and not yet received: a message by its source and target, those of a scatter by its group, too."""

    def __init__(self) -> None:
        self._sent = defaultdict[tuple[int, ...], deque[Packed]](deque)

    def post(self, call: Collective, here: int, members: Sequence[int]) -> tuple[int, ...] | None:
        """Put a rank's side of a call there; return under what the rank finds what it receives, if it does."""
        if call.verb == "send":
            self._sent[here, call.options["dst"]].append(call.inputs[0])
            return None
        if call.verb == "recv":
            return call.options["src"], here
        for target, packed in zip(members, call.inputs, strict=False):  # others than the root give none
            self._sent[here, target, call.group].append(packed)
        return call.options["src"], here, call.group

    def take(self, key: tuple[int, ...]) -> Packed:
        """Take what was sent first."""
        return self._sent[key].popleft()
