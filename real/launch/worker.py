"""Runs one rank as a process, and ends the process in time whatever happens to it or to other ranks.

The project's launcher supervises its ranks. Under torchrun and srun rank 0 starts a supervisor; when rank 0 itself is
lost, the first rank that notices writes the measurements.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from real.launch.job import Job
from real.launch.parent import die_with
from real.launch.placement import PARENT, Place
from real.launch.rendezvous import Rank0Supervisor, RunRendezvous, boot_id, join_launcher, join_rank0
from real.rank.lanes import SAME_CLOCK
from real.rank.run import RankRun, is_second_hand, sentence_of
from real.supervise.control_channel import ControlChannel
from real.supervise.rank_status import SECOND_HAND_S, where
from real.supervise.recovery import write_what_is_left
from real.supervise.spool import Steps, log_of, mark_written, open_steps, put_away

# A rank that has reported its end is asked to exit within this time; if not, it exits.
_LEAVE_S = 2 * SECOND_HAND_S + 1.0


class RankWorker:
    """A rank's process under torchrun, srun or the project's launcher."""

    def __init__(self, job: Job, place: Place) -> None:
        self._job, self._place = dataclasses.replace(job, played_on=job.played_on or place.by), place
        self._began_s = time.monotonic()
        self._step: int | None = None
        self._steps: Steps | None = None
        self._run: RankRun | None = None
        self._channel: ControlChannel | None = None
        self._supervisor: Rank0Supervisor | None = None

    def serve(self) -> Path | None:
        """Run the job to its end; return the recording's folder on rank 0 of torchrun and srun, else None.

        Raises:
            SystemExit: with 1, when the run ended early; the sentence has been printed.
        """
        if PARENT in os.environ:
            die_with(int(os.environ[PARENT]))
        _watch_signals(self._report_signal)
        try:
            self._play()
        except BaseException as error:
            self._fail(error)
            raise SystemExit(1) from error
        return self._job.out if self._supervisor is not None else None

    def _play(self) -> None:
        rendezvous = self._join()
        is_near = rendezvous.boot_id == boot_id()
        self._steps = open_steps(self._job.spool) if is_near or self._place.by == "launcher" else None
        channel = self._channel = ControlChannel(
            (rendezvous.host, rendezvous.port),
            self._place.rank,
            rendezvous.token,
            timeout_s=self._job.scenario.run.timeout_s,
            tells_steps=self._steps is None,
            on_stop=self._end_run,
            on_cut=self._leave_unsupervised,
        )
        run = self._run = RankRun(self._job, self._place, rendezvous.store, self._step_begins)
        channel.journal = run.journal
        recording = run.play(self._job.build(), (lambda: SAME_CLOCK) if is_near else channel.look)
        if recording is not None:
            self._job.write(recording)
            # Before `bye`: whatever happens to the run after this must not write an incomplete one over it.
            mark_written(self._job.spool)
        channel.close()
        if self._supervisor is not None:
            self._supervisor.wait_for_all()
            put_away(self._job)

    def _join(self) -> RunRendezvous:
        if self._place.by == "launcher":
            return join_launcher(self._place, self._job.start_s)

        def bring_up(address: str) -> Rank0Supervisor:
            self._supervisor = Rank0Supervisor(self._job, address, self._began_s)
            return self._supervisor

        rendezvous = join_rank0(self._place, self._job, bring_up)
        self._job = dataclasses.replace(
            self._job, out=rendezvous.out, spool=rendezvous.spool, started=rendezvous.started
        )
        self._job.spool.mkdir(parents=True, exist_ok=True)  # a folder of this host, where rank 0's is not visible
        return rendezvous

    def _step_begins(self, index: int) -> None:
        self._step = index
        if self._steps is not None:
            self._steps.enter(self._place.rank, index)
        if self._channel is not None:
            self._channel.step = index

    def _fail(self, error: BaseException) -> None:
        """Report an error to the supervisor, which stops all ranks; wait to be stopped."""
        self._log(error)
        sentence = sentence_of(error, self._place.rank, where(self._step))
        if self._channel is None:
            print(sentence, file=sys.stderr, flush=True)
            return
        self._channel.say(
            {"lost" if is_second_hand(error, self._place.rank) else "failed": sentence, "step": self._step}
        )
        # The supervisor's stop ends this process on the control channel's thread.
        time.sleep(_LEAVE_S)

    def _log(self, error: BaseException) -> None:
        """Write the traceback to the rank's log: stderr under the project's launcher, else the file."""
        text = "".join(traceback.format_exception(error))
        if self._place.by == "launcher":
            print(text, file=sys.stderr, flush=True)
        elif self._job.spool.is_dir():
            log_of(self._job.spool, self._place.rank).write_text(text)

    def _spool_rest(self) -> None:
        if self._run is not None:
            self._run.keeper.step_ends(is_last=True)

    def _end_run(self, sentence: str) -> None:
        """Handle the end of the run, on the control channel's thread; rank 0's supervisor ends its own process."""
        self._spool_rest()
        if self._supervisor is None:
            _leave_now()

    def _leave_unsupervised(self) -> None:
        """Handle the loss of the supervisor (the launcher or rank 0), on the control channel's thread."""
        self._spool_rest()
        if self._place.by != "launcher":
            self._report_rank_0()
        _leave_now()

    def _report_rank_0(self) -> None:
        try:
            # All ranks notice the loss at once: the rank that creates this file writes the run.
            os.close(os.open(self._job.spool / "reporter", os.O_CREAT | os.O_EXCL))
        except OSError:
            return  # another rank writes it
        sentence = f"rank 0 was lost {where(self._step if self._steps is None else self._steps.of_all()[0])}"
        write_what_is_left(self._job, sentence, self._began_s)

    def _report_signal(self, number: int) -> None:
        """Report a signal, on the signals' thread, as second-hand news: another rank may know the cause."""
        if self._channel is None:
            _leave_now()
        else:
            name = signal.Signals(number).name
            self._channel.say(
                {"lost": f"rank {self._place.rank} was told to stop by {name} {where(self._step)}", "step": self._step}
            )


def _leave_now() -> None:
    """Exit with 1 at once, without waiting for threads or a transport that may never end."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _watch_signals(report: Callable[[int], None]) -> None:
    """Call `report(number)` on a thread of its own: the main thread may be in a wait that no handler interrupts."""
    reader, writer = os.pipe()
    # A signal handler must not block when the pipe is full.
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reader, 1):
            report(number[0])

    threading.Thread(target=watch, name="signals", daemon=True).start()
