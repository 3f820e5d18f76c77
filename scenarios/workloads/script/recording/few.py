"""Plays a few ranks of a world, each a process that is answered by `Alone`, one at a time and as far as is wanted."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from scenarios.seam.errors import ProgramError
from scenarios.workloads.script.live import LivePlayer
from scenarios.workloads.script.recording.alone import Alone, Sent
from scenarios.workloads.script.recording.likeness import difference
from scenarios.workloads.script.recording.lines import Families, Logs, RankLog

# How many ranks may be processes of their own.
MOST_PROCESSES = 64


class Few:
    """A few ranks of a world; a context that ends their processes."""

    def __init__(self, begin: Callable[[int], LivePlayer], logs: Logs, world_size: int, steps: int) -> None:
        """`begin` starts a rank's process; `steps`: how many are wanted."""
        self.world_size, self.logs, self._begin, self._steps = world_size, logs, begin, steps
        self._of: dict[int, _Played] = {}
        self._running = set[int]()
        self._sent = Sent(self._advance)
        self._differences: dict[tuple[int, int], str | None] = {}

    def __enter__(self) -> Few:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for played in self._of.values():
            played.player.close()

    @property
    def ranks(self) -> list[int]:
        """The ranks that have begun, in that order."""
        return list(self._of)

    @property
    def made(self) -> Families:
        """The groups that rank 0 has made."""
        return self._of[0].alone.made

    @property
    def messages(self) -> set[tuple[int, int]]:
        """The groups in which messages were sent, each with how far the ranks at their ends are apart."""
        return {each for played in self._of.values() for each in played.alone.has_messages}

    def play(self, rank: int, *, to_end: bool = False) -> None:
        """Have a rank come to the end of its first step, or of all."""
        self._advance(rank, lambda: not to_end and self._of[rank].steps > 0)

    def difference(self, one: int, two: int, *, to_end: bool = False) -> str | None:
        """Return where two ranks that were played part, in their first step or anywhere; None: they do the same."""
        if to_end or (one, two) not in self._differences:
            try:
                both = self.logs.replays(one, two, self.world_size)
                self._differences[one, two] = difference(*both, steps=None if to_end else 1)
            except ProgramError as error:
                self._differences[one, two] = str(error)
        return self._differences[one, two]

    def _advance(self, rank: int, is_there: Callable[[], bool]) -> None:
        """Have a rank go on until it is there, at its end, or waits for one that waits for it."""
        if rank in self._running or (rank not in self._of and len(self._of) == MOST_PROCESSES):
            return
        if rank not in self._of:
            alone = Alone(rank, self.world_size, self._sent)
            self._of[rank] = _Played(self._begin(rank), self.logs.begin(rank), alone)
        self._running.add(rank)
        played = self._of[rank]
        while not (played.is_over or is_there()):
            played.turn(self._steps)
        self._running.remove(rank)


class _Played:
    """A rank's process, which waits between two turns for the answer to its last request."""

    def __init__(self, player: LivePlayer, log: RankLog, alone: Alone) -> None:
        self.player, self.alone, self._log = player, alone, log
        self.steps, self.is_over = 0, False  # ends of steps so far
        self._request: tuple[str, Any] | None = None

    def turn(self, steps: int) -> None:
        """Answer the last request and note the next; the last one is the end of `steps` steps that follow the first."""
        if self._request is not None:
            self.player.answer(self.alone.answer(*self._request))
        request = self.player.next()
        self._log.note(request)
        _, kind, argument = request
        self._request = kind, argument
        self.steps += kind == "step"
        self.is_over = kind == "end" or self.steps > steps
        if self.is_over:
            self._log.is_whole = True
            self.player.close()
