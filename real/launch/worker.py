"""One rank as a process: it finds the others, plays, and leaves in time whatever happens to it or to them.

Under our launcher the warden is there. Under torchrun and srun, rank 0 brings one up (`host`); when rank 0 itself is
lost, the first rank that notices keeps what was measured.
"""

from __future__ import annotations

import ctypes
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
from real.launch.placement import PARENT, Place
from real.launch.rank0_supervisor import Host
from real.launch.rendezvous import Meeting, boot_id, meet_host, meet_launcher
from real.rank.lanes import SAME_CLOCK
from real.rank.run import RankRun, is_second_hand, sentence_of
from real.supervise.control_channel import Line
from real.supervise.early_end import keep_what_there_is, log_of, put_away
from real.supervise.rank_status import SECOND_HAND_S
from real.supervise.shared_steps import Steps, found

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# A rank that has told of its end is told to go by then; if not, it goes.
_LEAVE_S = 2 * SECOND_HAND_S + 1.0
# What ranks that were just told to stop take to spool the rest, at most.
_SPOOLING_S = 0.5


class Station:
    """One rank's process under torchrun, srun or our launcher."""

    def __init__(self, job: Job, place: Place) -> None:
        self._job, self._place = dataclasses.replace(job, played_on=job.played_on or place.by), place
        self._began_s = time.monotonic()
        self._step: int | None = None
        self._steps: Steps | None = None
        self._run: RankRun | None = None
        self._line: Line | None = None
        self._host: Host | None = None

    def serve(self) -> Path | None:
        """Play to the end; the folder with the recording on rank 0 without a launcher, None on others.

        Raises:
            SystemExit: with 1, when the run is over before its end; whoever is to say so has said it.
        """
        _die_with_parent()
        _watch_signals(self._was_told)
        try:
            self._play()
        except BaseException as error:
            self._fail(error)
            raise SystemExit(1) from error
        return self._job.out if self._host is not None else None

    def _play(self) -> None:
        meeting = self._meet()
        is_near = meeting.boot_id == boot_id()
        self._steps = found(self._job.spool) if is_near or self._place.by == "launcher" else None
        line = self._line = Line(
            (meeting.host, meeting.port),
            self._place.rank,
            meeting.token,
            timeout_s=self._job.scenario.timeout_s,
            tells_steps=self._steps is None,
            on_stop=self._was_stopped,
            on_cut=self._was_cut,
        )
        run = self._run = RankRun(self._job, self._place, meeting.store, self._step_begins)
        line.journal = run.journal
        recording = run.play(self._job.build(), (lambda: SAME_CLOCK) if is_near else line.look)
        if recording is not None:
            self._job.write(recording)
        line.close()
        if self._host is not None:
            self._host.wait_for_all()
            put_away(self._job)

    def _meet(self) -> Meeting:
        if self._place.by == "launcher":
            return meet_launcher(self._place, self._job.scenario.timeout_s)

        def bring_up(address: str) -> Host:
            self._host = Host(self._job, address, self._began_s)
            return self._host

        meeting = meet_host(self._place, self._job, bring_up)
        self._job = dataclasses.replace(self._job, out=meeting.out, spool=meeting.spool, started=meeting.started)
        self._job.spool.mkdir(parents=True, exist_ok=True)  # a folder of its own, where the host's is not to be seen
        return meeting

    def _step_begins(self, index: int) -> None:
        self._step = index
        if self._steps is not None:
            self._steps.enter(self._place.rank, index)
        elif self._line is not None:
            self._line.step = index

    def _fail(self, error: BaseException) -> None:
        """Say it to the warden, who says it to everyone; wait to be told to go."""
        self._log(error)
        sentence = sentence_of(error, self._place.rank)
        if self._line is None:
            print(sentence, file=sys.stderr, flush=True)
            return
        self._line.say({"lost" if is_second_hand(error, self._place.rank) else "failed": sentence, "step": self._step})
        time.sleep(_LEAVE_S)

    def _log(self, error: BaseException) -> None:
        """Our launcher takes stderr for the log; elsewhere the traceback goes straight there."""
        text = "".join(traceback.format_exception(error))
        if self._place.by == "launcher":
            print(text, file=sys.stderr, flush=True)
        elif self._job.spool.is_dir():
            log_of(self._job.spool, self._place.rank).write_text(text)

    def _spool_rest(self) -> None:
        if self._run is not None:
            self._run.keeper.step_ends(is_last=True)

    def _was_stopped(self, sentence: str) -> None:
        """On the line's thread: the run is over. Rank 0 stays while it is host: that ends the process."""
        self._spool_rest()
        if self._host is None:
            _leave_now()

    def _was_cut(self) -> None:
        """On the line's thread: the warden is gone, and with it the launcher or rank 0."""
        self._spool_rest()
        if self._place.by != "launcher":
            self._report_rank_0()
        _leave_now()

    def _report_rank_0(self) -> None:
        try:
            os.close(os.open(self._job.spool / "reporter", os.O_CREAT | os.O_EXCL))
        except OSError:
            return  # another rank does it
        time.sleep(_SPOOLING_S)
        step = self._step if self._steps is None else self._steps.of_all()[0]
        where = "before its first step" if step is None else f"in step {step}"
        sentence = f"rank 0 was lost {where}"
        further = keep_what_there_is(self._job, sentence, self._began_s)
        print(sentence if further is None else f"{sentence}; {further}", file=sys.stderr, flush=True)

    def _was_told(self, number: int) -> None:
        """On the signals' thread. What ended the run may be known better by another; so this is second-hand news."""
        where = "before its first step" if self._step is None else f"in step {self._step}"
        if self._line is None:
            _leave_now()
        else:
            name = signal.Signals(number).name
            self._line.say({"lost": f"rank {self._place.rank} was told to stop by {name} {where}", "step": self._step})


def _leave_now() -> None:
    """Without waiting for threads that may never end, or for a transport that is waiting for others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _die_with_parent() -> None:
    """When the launcher is killed, so that it cannot stop us, the kernel kills us."""
    parent = os.environ.get(PARENT)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before we could ask
        _leave_now()


def _watch_signals(told: Callable[[int], None]) -> None:
    """Call `told(number)` on a thread of its own: the main thread may be in a wait that no handler interrupts."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(reader, 1):
            told(number[0])

    threading.Thread(target=watch, name="signals", daemon=True).start()
