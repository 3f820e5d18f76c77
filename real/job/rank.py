"""A rank of a job: joins its group, loads the newest checkpoint, continues from there, and saves checkpoints.

torch's elastic agent forks it anew after each failure; see `real.job.agent`.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import save as save_state

from real.job.elastic import ElasticJob, load
from real.job.journal import JobJournal
from real.launch.parent import die_with
from real.libraries import library_of
from real.libraries.errors import is_transports
from real.rank.agreement import GroupAgreements
from real.rank.backend import TorchBackend
from real.rank.context import RankContext
from real.rank.drive import play
from real.rank.journal import Journal
from real.rank.lanes import now_ns
from real.rank.run import SWITCH_INTERVAL_S, TRANSPORT_TIMEOUTS, is_second_hand, sentence_of
from real.supervise.spool import open_steps
from scenarios.seam.program import begin
from scenarios.seam.rank import Rank

_STEP = "step"  # key of a checkpoint's number of steps


def be_rank(path: str) -> None:
    """Run one rank of the job in this file, in a process that an agent has forked."""
    # The agent's handler, which would be inherited, does not run while a rank stands in a collective.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(os.getppid())
    warnings.simplefilter("ignore")  # torch's, about its own checkpoints
    job, number = load(Path(path)), int(os.environ["RANK"])
    journal = JobJournal(job.folder, f"rank-{number}")
    journal.note("started", pid=os.getpid(), attempt=int(os.environ["TWINSTEP_ATTEMPT"]))
    try:
        _JobRank(job, number, journal).run()
    except Exception as error:
        is_others = is_second_hand(error, number) or (isinstance(error, RuntimeError) and is_transports(error))
        journal.note("failed", error=sentence_of(error, number), is_own=not is_others)
        sys.stderr.flush()
        os._exit(1)  # gloo's threads would wait for ranks that are gone
    journal.note("ended")


class _JobRank:
    """One rank, from joining its group to its end; it listens to its own steps."""

    def __init__(self, job: ElasticJob, number: int, notes: JobJournal) -> None:
        self._job, self._number, self._notes = job, number, notes
        self._steps = job.scenario.run.steps
        self._shared = open_steps(job.folder)
        self._first = 0  # steps that the loaded checkpoint has
        self._index = 0
        self._began_ns = 0

    def run(self) -> None:
        """Join, load, and run what is left of the program."""
        context = self._join()
        self._first = self._job.saved_step()
        program = self._job.program(max(self._steps - self._first, 1))
        rank = Rank(TorchBackend(context))
        gc.collect()
        gc.freeze()
        dist.barrier()
        self._notes.note("joined")
        self._load()
        dist.barrier()
        self._notes.note("restored", step=self._first)
        if self._first < self._steps:
            play(begin(program, rank), self._number)
        context.leave()
        dist.barrier()

    def _join(self) -> RankContext:
        run, cluster = self._job.scenario.run, self._job.scenario.cluster
        library = library_of(run.library).at(int(os.environ["LOCAL_RANK"]))
        within_s = TRANSPORT_TIMEOUTS * run.timeout_s
        world_size = int(os.environ["WORLD_SIZE"])
        timeout = timedelta(seconds=within_s)
        # The store in which hosts meet: one of a rank or an agent would be gone with its host.
        host, _, port = self._job.endpoint.rpartition(":")
        meeting = dist.TCPStore(host, int(port), is_master=False, timeout=timeout)  # type: ignore[attr-defined]
        store = dist.PrefixStore(f"ranks/{os.environ['TWINSTEP_ATTEMPT']}", meeting)  # type: ignore[attr-defined]
        dist.init_process_group(library.backend, store=store, rank=self._number, world_size=world_size, timeout=timeout)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._journal = Journal(self._number, self._number // cluster.host.gpus, world_size)
        agreements = GroupAgreements(store, self._journal, world_size, within_s)
        return RankContext(self._journal, cluster, library, observer=self, agreements=agreements)

    def step_begins(self, index: int) -> None:
        """Note that the program begins a step; its first one follows the loaded checkpoint."""
        self._index, self._began_ns = self._first + index, now_ns()
        if self._shared is not None:
            self._shared.enter(self._number, self._index)

    def step_ends(self) -> None:
        """Note that the program has ended a step, and save a checkpoint if one is due."""
        self._notes.note("step", step=self._index, began_ns=self._began_ns)
        self._journal.take()  # spans, which nobody asked for
        done = self._index + 1
        if done % self._job.interval_steps == 0 or done == self._steps:
            self._save(done)

    def _save(self, done: int) -> None:
        began_ns = now_ns()
        size = self._job.size_at(done, self._number)
        # Empty memory, except both ends: a checkpoint's bytes have to be written, whatever they hold.
        held = torch.empty(size, dtype=torch.uint8)
        held[:1] = held[-1:] = done % 251
        folder = self._job.checkpoint_at(done)
        state = {f"rank{self._number}": held, _STEP: torch.tensor(done)}
        save_state(state, storage_writer=FileSystemWriter(folder))
        self._notes.note("saved", step=done, began_ns=began_ns, size_bytes=size)
        if self._number == 0:
            self._remove(lambda step: step < done)

    def _load(self) -> None:
        """Load the newest whole checkpoint."""
        done = self._first
        if self._number == 0:
            self._remove(lambda step: step > done)  # the write of which was interrupted
        if not done:
            return
        held = torch.empty(self._job.size_at(done, self._number), dtype=torch.uint8)
        state = {f"rank{self._number}": held, _STEP: torch.tensor(0)}
        load_state(state, storage_reader=FileSystemReader(self._job.checkpoint_at(done)))
        if int(state[_STEP]) != done or any(int(end) != done % 251 for end in (*held[:1], *held[-1:])):
            raise RuntimeError(f"{self._job.checkpoint_at(done)}: holds another step than {done}")

    def _remove(self, is_old: Callable[[int], bool]) -> None:
        for folder in self._job.checkpoints.glob("step-*"):
            if is_old(int(folder.name.removeprefix("step-"))):
                shutil.rmtree(folder, ignore_errors=True)
