"""Plays a few ranks of a world, each a process that is answered by `Alone`, in turns and as far as is wanted."""

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

    def __init__(
        self, begin: Callable[[int], LivePlayer], logs: Logs, world_size: int, steps: int, *, beside: bool = True
    ) -> None:
        """`begin` starts a rank's process; `steps`: how many are wanted; `beside`: processes may compute at once."""
        self.world_size, self.logs, self._begin, self._steps = world_size, logs, begin, steps
        self._is_beside = beside
        self._of: dict[int, _Played] = {}
        self._running = set[int]()
        self._sent = Sent(self._advance, self._of)
        self._differences: dict[tuple[int, int], str | None] = {}

    def __enter__(self) -> Few:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for played in self._of.values():
            played.player.close()

    @property
    def ranks(self) -> list[int]:
        """The ranks that have begun, in ascending order."""
        return sorted(self._of)

    @property
    def made(self) -> Families:
        """The groups that rank 0 has made."""
        return self._of[0].alone.made

    @property
    def messages(self) -> set[tuple[int, int]]:
        """The groups in which messages were sent, each with how far the ranks at their ends are apart."""
        return {each for played in self._of.values() for each in played.alone.has_messages}

    def begin_early(self, *ranks: int) -> None:
        """Start ranks' processes, which compute until their first requests, if they may beside others."""
        for rank in ranks if self._is_beside else ():
            self._started(rank)

    def play(self, *ranks: int, to_end: bool = False) -> None:
        """Have ranks come to the end of their first step, or of all: in turns, while each other's processes compute."""
        self.begin_early(*ranks)

        def is_left(rank: int) -> bool:
            played = self._started(rank)
            return not played.is_over and (to_end or played.steps == 0)

        for together in [ranks] if self._is_beside else [(rank,) for rank in ranks]:
            while left := [rank for rank in together if is_left(rank)]:
                for rank in filter(is_left, left):
                    self._turn(rank)

    def difference(self, one: int, two: int, *, to_end: bool = False) -> str | None:
        """Return where two ranks that were played part, in their first step or anywhere; None: they do the same."""
        if to_end or (one, two) not in self._differences:
            try:
                both = self.logs.replays(one, two, self.world_size)
                self._differences[one, two] = difference(*both, steps=None if to_end else 1)
            except ProgramError as error:
                self._differences[one, two] = str(error)
        return self._differences[one, two]

    def _started(self, rank: int) -> _Played:
        if rank not in self._of:
            alone = Alone(rank, self.world_size, self._sent)
            self._of[rank] = _Played(self._begin(rank), self.logs.begin(rank), alone)
        return self._of[rank]

    def _advance(self, rank: int, is_there: Callable[[], bool]) -> None:
        """Have a rank go on until it is there, at its end, or waits for one that waits for it."""
        if rank not in self._of and len(self._of) == MOST_PROCESSES:
            return
        self._started(rank)
        while not is_there() and self._turn(rank):
            pass

    def _turn(self, rank: int) -> bool:
        """Serve a rank's next request; return whether it was served: not at the rank's end, nor while it waits."""
        played = self._of[rank]
        if rank in self._running or played.is_over:
            return False
        self._running.add(rank)
        played.turn(self._steps)
        self._running.remove(rank)
        return True


class _Played:
    """A rank's process, which waits at the end of a step until it is to go on."""

    def __init__(self, player: LivePlayer, log: RankLog, alone: Alone) -> None:
        self.player, self.alone, self._log = player, alone, log
        self.steps, self.is_over = 0, False  # ends of steps so far
        self._request: tuple[str, Any] | None = None  # that is not answered yet

    def turn(self, steps: int) -> None:
        """Note and answer the next request; the last one is the end of `steps` steps that follow the first."""
        self._answer()
        request = self.player.next()
        self._log.note(request)
        _, kind, argument = request
        self._request = kind, argument
        self.steps += kind == "step"
        self.is_over = kind == "end" or self.steps > steps
        if self.is_over:
            self._log.is_whole = True
            self.player.close()
        elif kind != "step":
            self._answer()

    def _answer(self) -> None:
        if self._request is not None:
            kind, argument = self._request
            self.player.answer(self.alone.answer(kind, argument))
            self._request = None
