"""Runs one rank: joins the group, runs the program, sends the measured rows to rank 0.

`real.launch` finds the rank's place; `real.supervise` decides what happens when a rank is lost.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import re
import socket
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import takewhile

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from real.launch.job import Job
from real.launch.placement import Place
from real.libraries import library_of
from real.libraries.errors import transport
from real.libraries.library import DeviceLibrary
from real.machine import device_name
from real.rank.agreement import GroupAgreements
from real.rank.backend import TorchBackend
from real.rank.context import RankContext
from real.rank.drive import play
from real.rank.journal import Journal
from real.rank.lanes import SAME_CLOCK, Sight
from real.supervise import spool
from real.supervise.merge import merge, spool_head
from real.supervise.rank_status import ENDED, PLAYING, READY
from real.supervise.spool import Spool
from scenarios.config.scenario import Scenario
from scenarios.seam.calls import never_awaited
from scenarios.seam.errors import (
    CollectiveError,
    ProgramError,
    RankLostError,
    ScenarioError,
    ScriptError,
    place_of,
)
from scenarios.seam.program import Program, begin
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording

# Transports wait longer than the warden, so that the warden reports a lost rank first.
TRANSPORT_TIMEOUTS = 3.0
# A rank that fails by its own mistake stays this long, so that other members receive its refused call.
TELLING_S = 1.0
# Limits how long gloo's thread waits for the interpreter at a collective's end (default 5 ms).
SWITCH_INTERVAL_S = 0.0005

# Interval at which ranks on GPUs, and scripts, spool rows: spooling takes as long as many launches.
SPOOLED_EVERY_S = 1.0


class Keeper:
    """A writer that spools finished rows after a step; other threads call it too when the run is over."""

    def __init__(self, own: Spool, journal: Journal, on_step: Callable[[int], None], *, records: bool) -> None:
        self._own, self._journal, self._on_step, self._records = own, journal, on_step, records
        self._is_spooling, self._spooled_s = False, time.monotonic()
        self.every_s = 0.0  # how much may be lost in a crash

    def step_begins(self, index: int) -> None:
        """Report the step to the supervisor."""
        self._on_step(index)

    def step_ends(self, *, is_last: bool = False) -> None:
        """Append the finished rows of spans and metrics to this rank's file.

        Do nothing if another thread does so, or `every_s` has not passed since the last time (unless `is_last`).
        """
        if self._is_spooling or not (is_last or time.monotonic() - self._spooled_s >= self.every_s):
            return
        self._is_spooling, self._spooled_s = True, time.monotonic()
        spans, metrics = self._journal.take(is_last=is_last)
        for kind, rows in (("spans", spans), ("metrics", metrics)):
            if rows and self._records:
                self._own.append(kind, rows)
        self._is_spooling = False


class RankRun:
    """A job at one place, in a world with a connected store."""

    def __init__(
        self, job: Job, place: Place, store: Store, on_step: Callable[[int], None] = lambda index: None
    ) -> None:
        self._job, self._place, self._store = job, place, store
        self._began_s = time.monotonic()
        self.journal = Journal(place.rank, place.rank // job.scenario.cluster.host.gpus, place.world_size)
        self._own = Spool(job.spool, place.rank)
        self.keeper = Keeper(self._own, self.journal, on_step, records=job.records)

    def play(self, program: Program, look: Callable[[], Sight] = lambda: SAME_CLOCK) -> Recording | None:
        """Run the program; return the recording on rank 0, None on others. `look` reads the common clock.

        Raises:
            ProgramError: the program misused a verb, left a Work unawaited, or lost a connection.
            Exception: whatever the program raises.
        """
        library = library_of(self._job.scenario.run.library).at(self._place.local_rank)
        with transport(self._place.rank, "joining the others"):
            dist.init_process_group(
                library.backend,
                store=self._store,
                rank=self._place.rank,
                world_size=self._place.world_size,
                timeout=timedelta(
                    seconds=max(TRANSPORT_TIMEOUTS * self._job.scenario.run.timeout_s, self._job.start_s)
                ),
            )
        try:
            if self._place.by != "launcher":  # the launcher gives all ranks one job
                check_same_scenario(self._store, self._place.rank, self._job.scenario)
            spool_head(self._own, socket.gethostname(), device_name(library.device), program, look())
            self._play(program, library)
            self._own.append("sight", dataclasses.astuple(look()))
            # The second sight comes before it: the clocks' drift is measured over the run, not over the merging.
            recording = self._gather(library.lanes)
        except BaseException:
            self.keeper.step_ends(is_last=True)
            raise  # without destroying the group, which would wait for ranks that are gone
        self._own.close()
        self._context.leave()
        dist.destroy_process_group()
        return recording

    def _play(self, program: Program, library: DeviceLibrary) -> None:
        within_s = TRANSPORT_TIMEOUTS * self._job.scenario.run.timeout_s
        if library.device.type != "cpu":
            self.keeper.every_s = SPOOLED_EVERY_S
        agreements = GroupAgreements(self._store, self.journal, self._place.world_size, within_s)
        context = self._context = RankContext(
            self.journal,
            self._job.scenario.cluster,
            library,
            observer=self.keeper,
            agreements=agreements,
            check=self._job.check,
        )
        rank = Rank(TorchBackend(context))
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.collect()
        gc.freeze()  # collections in the middle of a step need not scan what exists now
        # Told before the barrier: while a rank waits in it, the supervisor can name the ranks that are not ready.
        self.journal.stage = READY
        with transport(context.rank, "the start of the run"):
            dist.barrier()
        self.journal.stage = PLAYING
        try:
            play(begin(program, rank), context.rank)
        except BaseException:
            context.tell_refused(TELLING_S)
            raise
        for entry in self.journal.unawaited:
            raise ProgramError(never_awaited(self.journal.rank, entry.describe()))
        self.journal.stage = ENDED
        # All marks have passed then, so that the last rows have their times.
        context.settle()
        self.keeper.step_ends(is_last=True)

    def _gather(self, lanes: int) -> Recording | None:
        """Gather all spools on rank 0, through the default group, which no program uses."""
        is_root = self._place.rank == 0
        spools: list[bytes] | None = [b""] * self._place.world_size if is_root else None
        with transport(self._place.rank, "the end of the run"):
            dist.gather_object(spool.read(self._job.spool, self._place.rank), spools)
            dist.barrier()
        if spools is None:
            return None
        return merge(self._job, dict(enumerate(spools)), lanes=lanes, elapsed_s=time.monotonic() - self._began_s)


def sentence_of(error: BaseException, rank: int, where: str = "") -> str:
    """Return a rank's error as one sentence that names the rank; `where` it happened, such as "in step 3"."""
    if isinstance(error, ScriptError):
        return str(error)
    raised = " ".join(filter(None, (f"rank {rank} raised {type(error).__name__}", where)))
    lines = list(takewhile(str.strip, str(error).splitlines()))
    if not lines:
        return raised + place_of(error)
    if isinstance(error, (ScenarioError, CollectiveError)) or lines[0].startswith(f"rank {rank}: "):
        return "; ".join(lines)
    if isinstance(error, ProgramError):
        return "; ".join(lines) if lines[0].startswith(f"rank {rank}") else f"rank {rank}: {'; '.join(lines)}"
    return f"{raised}: {lines[0]}{place_of(error)}"


def is_second_hand(error: BaseException | None, rank: int) -> bool:
    """Return whether an error was caused by a lost connection or by another rank's refused call."""
    while error is not None:
        other = _RANKS_OWN.match(str(error)) if isinstance(error, CollectiveError) else None
        if isinstance(error, RankLostError) or (other is not None and int(other[1]) != rank):
            return True
        error = error.__cause__ or error.__context__
    return False


# Beginning of a sentence about one rank's own arguments.
_RANKS_OWN = re.compile(r"rank (\d+): ")


_KEY = "scenario"


def check_same_scenario(store: Store, rank: int, scenario: Scenario) -> None:
    """Compare this rank's scenario with rank 0's, through the store.

    Raises:
        ProgramError: they differ; the sentence names this rank's host and, if the program's code differs, the files.
    """
    own = {source.name: source.sha256 for source in scenario.sources}
    if rank == 0:
        told = {"host": socket.gethostname(), "digest": scenario.digest(), "sources": own}
        store.set(_KEY, json.dumps(told))
        return
    first = json.loads(store.get(_KEY))
    if first["digest"] == scenario.digest():
        return
    here = f"rank {rank}: host {socket.gethostname()}"
    theirs: dict[str, str] = first["sources"]
    missing = [name for name in theirs if name not in own]
    others = [name for name in own if own[name] != theirs.get(name)]
    what = f"another {', '.join(others)}" if others else f"no {', '.join(missing)}"
    if not (others or missing):
        what = f"another scenario {scenario.path}"
    raise ProgramError(f"{here} has {what}, unlike rank 0's host {first['host']}, expected the same files on all hosts")
