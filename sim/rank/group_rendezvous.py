"""One `new_group` or `stream` of all ranks: whether they make the same call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.seam.calls import SET_UP_MISTAKES, SetUp, set_up_disagreement
from scenarios.seam.errors import CollectiveError


class GroupRendezvous:
    """The `index`-th that each rank makes, on whatever stream."""

    __slots__ = ("_kept", "_ranks", "_set_ups", "sentence")

    def __init__(self, ranks: Sequence[int]) -> None:
        """`ranks`: all that are played."""
        self._ranks = ranks
        self._set_ups: dict[int, SetUp] = {}
        self._kept: dict[SetUp, SetUp] = {}  # equal ones are one object: ranks of each rank would be ranks squared
        self.sentence: str | None = None

    def enter(self, rank: int, check: Callable[[], SetUp]) -> SetUp:
        """The checked call of a rank, which does not wait here: the last to come hears at once that calls differ.

        Raises:
            TypeError, ValueError, ProgramError: what `check` does.
            CollectiveError: all have come, and others make another call, or theirs was refused.
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
        """Nothing, unless all have come and their calls are not the same: then CollectiveError."""
        if self.sentence is not None:
            raise CollectiveError(self.sentence)

    def check_at_end(self, *, has_ended: bool) -> None:
        """Nothing, unless that explains why programs stand still or, if all have ended, why one would on real ranks.

        Raises:
            CollectiveError: of those who have come, a rank makes another call than others; or one never came.
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
