"""Runs a few ranks of a world: each a process, answered by `Alone`, in turns and as far as the caller wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import ScriptEnd, StepEnd
from scenarios.workloads.recording.lines import Logs, RankLog
from scenarios.workloads.script.recording.replay import Families, where_ranks_part
from scenarios.workloads.script.recording.single_rank import Alone, SentByRanks, WaitingFor
from scenarios.workloads.script.runner import LivePlayer

# How many ranks may run, each in a process.
MOST_PROCESSES = 64


class Few:
    """A few running ranks of a world."""

    def __init__(self, begin: Callable[[int], LivePlayer], logs: Logs, world_size: int, steps: int) -> None:
        """Prepare a world of `world_size` ranks. `begin` starts a rank's process; `steps`: how many steps to run."""
        self.world_size, self.logs, self._begin, self._steps = world_size, logs, begin, steps
        self._of: dict[int, _PlayedProcess] = {}
        self._sent = SentByRanks(self._may_send)
        self._differences: dict[tuple[int, int], str | None] = {}

    def close(self) -> None:
        """End the processes."""
        for played in self._of.values():
            played.player.close()

    @property
    def running(self) -> set[int]:
        """The ranks that have processes."""
        return set(self._of)

    @property
    def ranks(self) -> list[int]:
        """The ranks that have finished their first step or their script, in ascending order."""
        return sorted(rank for rank, played in self._of.items() if played.steps or played.is_over)

    @property
    def created_groups(self) -> Families:
        """The groups that rank 0 has created."""
        return self._of[0].alone.made

    @property
    def boundaries(self) -> list[int]:
        """The ranks, ascending, to which rank 0 sends other sizes than to the rank before them."""
        return sorted(self._of[0].alone.told_apart)

    @property
    def messages(self) -> set[tuple[tuple[int, ...], int]]:
        """The members of each group in which messages were sent, with the distance between sender and receiver."""
        return {each for played in self._of.values() for each in played.alone.has_messages}

    def begin_early(self, *ranks: int) -> None:
        """Start processes of ranks, which compute until their first requests."""
        for rank in ranks:
            self._start(rank)

    def play(self, *ranks: int, to_end: bool = False) -> None:
        """Run ranks to the end of their first step, or of all, in turns; their processes compute concurrently."""
        self.begin_early(*ranks)

        def is_left(rank: int) -> bool:
            played = self._of[rank]
            return not played.is_over and (to_end or played.steps == 0)

        while left := [rank for rank in ranks if is_left(rank)]:
            have_served = [self._of[rank].turn(self._steps) for rank in left]
            # Nobody can go on, and no other rank helps: what is waited for comes from ranks that do not run.
            if not any(have_served) and not self._help(left):
                self._end_waiting(left)

    def _help(self, ranks: Sequence[int]) -> bool:
        """Serve one request each of ranks for which `ranks` wait, also indirectly; return whether any was served."""
        waiting, seen, has_served = deque(ranks), set(ranks), False
        while waiting:
            wanted = self._of[waiting.popleft()].waits_for
            others = sorted(self._of) if wanted is None else [wanted]
            for rank in others:
                if rank not in seen:
                    seen.add(rank)
                    if self._start(rank).turn(self._steps):
                        has_served = True
                    elif not self._of[rank].is_over:
                        waiting.append(rank)
        return has_served

    def _end_waiting(self, ranks: Sequence[int]) -> None:
        """Answer one waiting rank with what is available, by preference one that waits for a certain rank."""
        found = [rank for rank in ranks if self._of[rank].waits_for is not None] or ranks
        self._of[found[0]].turn(self._steps, is_last=True)

    def difference(self, one: int, two: int, *, to_end: bool = False) -> str | None:
        """Return where two ranks part, in their first step or (`to_end`) anywhere; None if they do not."""
        if to_end or (one, two) not in self._differences:
            steps = None if to_end else 1
            self._differences[one, two] = where_ranks_part(self.logs, one, two, self.world_size, steps=steps)
        return self._differences[one, two]

    def _start(self, rank: int) -> _PlayedProcess:
        if rank not in self._of:
            alone = Alone(rank, self.world_size, self._sent)
            self._of[rank] = _PlayedProcess(self._begin(rank), self.logs.begin(rank), alone)
        return self._of[rank]

    def _may_send(self, rank: int, is_wanted: bool) -> bool:
        if rank not in self._of and (not is_wanted or len(self._of) == MOST_PROCESSES):
            return False
        return not self._start(rank).is_over


class _PlayedProcess:
    """A rank's process, which pauses at the end of a step.

    Attributes:
        steps: how many steps have ended.
        is_over: whether the process has done all that is wanted.
        waits_for: after `turn` has returned False, the rank that has to answer; None: any rank.
    """

    def __init__(self, player: LivePlayer, log: RankLog, alone: Alone) -> None:
        self.player, self.alone, self._log = player, alone, log
        self.steps, self.is_over = 0, False
        self.waits_for: int | None = None
        self._request: Request | None = None  # the pending request

    def turn(self, steps: int, *, is_last: bool = False) -> bool:
        """Answer the pending request if possible, then log the next request; return whether this advanced the process.

        With `is_last` a request that still waits for other ranks is answered all the same.
        """
        if self.is_over or not self._is_answered(is_last):
            return False
        turn = self.player.next()
        self._log.note(turn)
        self._request = turn.request
        is_step = isinstance(turn.request, StepEnd)
        self.steps += is_step
        self.is_over = isinstance(turn.request, ScriptEnd) or self.steps > steps
        if self.is_over:
            self._log.is_whole = True
            self.player.close()
        elif not is_step:
            self._is_answered(False)
        return True

    def _is_answered(self, is_last: bool) -> bool:
        if self._request is None:
            return True
        found = self.alone.answer(self._request, is_last=is_last)
        if isinstance(found, WaitingFor):
            self.waits_for = found.rank
            return False
        self.player.answer(found)
        self._request = None
        return True
