"""Work of a rank's host next to its GPU: waits for batches of DataLoader workers, and reports of CPU work."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from scenarios.config.scenario import Scenario
from scenarios.seam.host_work import NO_WORK, HostWork
from scenarios.seam.rank import Rank
from scenarios.workloads.recording.events.notes import LoadedBatch, NoteCpuWork, NoteLeftOut
from scenarios.workloads.script.outcome import Outcomes

# What a process reports of its host.
OfHost: TypeAlias = NoteLeftOut | NoteCpuWork | LoadedBatch


@dataclass(slots=True)
class _Workers:
    """The workers of one data loader: when each finishes its last batch, and when the coming batches were requested."""

    free_ns: list[int]
    asked_ns: deque[int]
    taken: int = field(default=0)


class BesideGpu:
    """A model of the work of one rank's host next to its GPU.

    The workers of a data loader load batches in turn, each up to `prefetch` batches ahead. If a host has more workers
    and ranks than cores, they share the cores.
    """

    def __init__(self, rank: Rank, scenario: Scenario, outcomes: Outcomes) -> None:
        self._rank, self._host, self._outcomes = rank, scenario.cluster.host, outcomes
        self._of: dict[int, _Workers] = {}

    def hear(self, request: OfHost, *, is_in_step: bool) -> None:
        """Process a report of the host; record CPU work only within steps."""
        cpu_work = self._outcomes.cpu_work
        match request:
            case NoteLeftOut(found):
                self._outcomes.note_left_out(found)
            case NoteCpuWork(computed) if is_in_step:
                cpu_work.note(computed)
            case LoadedBatch(number, workers, prefetch, turns, place):
                takes_ns, waits_ns = self._take(number, workers, prefetch, turns)
                if is_in_step and self._rank.rank == 0:
                    cpu_work.note_batch(place, workers, takes_ns, waits_ns)

    def _take(self, number: int, workers: int, prefetch: int, turns: int) -> tuple[int, int]:
        """Make the rank's host wait for a loader's next batch, which takes a worker `turns` turns.

        Returns:
            The worker's time for the batch and the host's wait, in ns.
        """
        now_ns = self._rank.host_work(NO_WORK)
        found = self._of.get(number)
        if found is None:
            found = self._of[number] = _Workers([now_ns] * workers, deque([now_ns] * (workers * prefetch)))
        sharing = max(1.0, self._host.gpus * (workers + 1) / self._host.cores)
        takes_ns = round(sharing * self._host.gpu.eager.computes_ns(HostWork(turns=turns)))
        worker = found.taken % workers
        if found.taken < workers:  # start staggered, as workers end up in the long run
            found.free_ns[worker] += takes_ns * worker // workers
        found.taken += 1
        ready_ns = found.free_ns[worker] = max(found.free_ns[worker], found.asked_ns.popleft()) + takes_ns
        waits_ns = max(0, ready_ns - now_ns)
        if waits_ns:
            self._rank.host_work(HostWork(waits_ns=waits_ns))
        found.asked_ns.append(now_ns + waits_ns)
        return takes_ns, waits_ns
