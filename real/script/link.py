"""A script's process on a real rank: runs the script as torchrun would, and reports to the process that started it."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch._C._distributed_c10d import Store, TCPStore

from real.launch.parent import die_with
from real.rank.journal import Entry, Journal
from real.rank.lanes import Mark
from real.rank.run import SPOOLED_EVERY_S, SWITCH_INTERVAL_S
from real.script.backend import WatchingBackend
from real.script.process_group import WatchedGroup
from real.script.unrecorded import SETTLING, UnrecordedSteps
from real.supervise.control_channel import STEP_S, position
from real.supervise.rank_status import PLAYING
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.seam.trace import LEAST_UNRECORDED
from scenarios.workloads.recording.events.calls import NewGroup
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import RecordMetric, ScriptEnd, ScriptFailure, StepEnd
from scenarios.workloads.recording.events.work import Label
from scenarios.workloads.script.config import Marking, Script
from scenarios.workloads.script.process.children import stand_alone
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.subprocess_player import play
from scenarios.workloads.script.users_lines import users_line


class RankPlace(NamedTuple):
    """The rank of a script, and its host."""

    rank: int
    host: int
    world_size: int
    local_world_size: int


def main(
    connection: Connection,
    place: RankPlace,
    steps: int,
    script: Script,
    env: Mapping[str, str],
) -> None:
    """Run the script for `steps` steps after its first; report each step, and the script's position on request.

    Messages are pairs: "ready" and "at" with a position as in `real.supervise.rank_status`; "step" and its number;
    "rows" and those of spans and of metrics; "recorded" and the fields of an `Outcome` when all steps are recorded and
    unrecorded steps follow; "end" and such fields; "error" and a sentence, with the script's frames below it.
    """
    die_with(os.getppid())
    import_module("twinstep")  # claims names of packages that the script's folder may have, too
    stand_alone()
    os.environ.update(env)
    link = WatchedLink(connection, place, steps)
    link.unrecorded_steps = _unrecorded_steps(script, steps, is_on_gpu=link.is_on_gpu)
    if not link.is_on_gpu:  # gloo's threads report ends, and need Python's lock soon
        sys.setswitchinterval(SWITCH_INTERVAL_S)
    if not link.is_on_gpu or place.local_world_size > 1:  # torchrun too leaves all threads to a single rank
        torch.set_num_threads(1)
    link.wait_for_all()
    threading.Thread(target=link.answer, daemon=True).start()
    if script.is_cut and not (script.is_on_default and link.is_on_gpu):
        link.labels = Labels(link.turn)
    play(script, link)


def _unrecorded_steps(script: Script, steps: int, *, is_on_gpu: bool) -> int:
    """Return the number of steps to time with the recording off; 0 where steps are marked by counting collectives."""
    if script.step_every and Marking.of(script.step_every).is_of_calls:
        return 0
    if script.unrecorded_steps is None:
        return steps if is_on_gpu else 0
    return script.unrecorded_steps


class WatchedLink:
    """A `Link` between a rank's script and the process that started it.

    Attributes:
        unrecorded_steps: number of steps timed with the recording off, after the recorded steps.
        labels: hooks on the script's modules, if there are any.
    """

    def __init__(self, connection: Connection, place: RankPlace, steps: int) -> None:
        self._connection, self._steps, self._lock = connection, steps, threading.Lock()
        self._journal = Journal(place.rank, place.host, place.world_size)
        self._journal.stage = PLAYING
        self._backend = WatchingBackend(self._journal, place.world_size, place.local_world_size)
        self._rank = Rank(self._backend)
        self._group: Group = self._rank.world
        # Groups are kept: taking gloo down with callbacks in flight may hang (torch 2.13).
        self._groups: list[WatchedGroup] = []
        self._main = threading.get_ident()
        self._meeting = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        self._store: Store | None = None
        self._step: Entry | None = None
        self._steps_begun = 0
        self._rows_lock, self._rows_sent_s = threading.Lock(), time.monotonic()
        self._reported_step, self._reported_s = -1, -math.inf
        self.unrecorded_steps = 0
        self.labels: Labels | None = None
        self._unrecorded: UnrecordedSteps | None = None  # None until they begin
        self._requested_s = time.monotonic()  # when the parent last requested the position
        self._stepped_s, self._longest_s = time.monotonic(), 0.0  # last end of a recorded step; the longest step

    @property
    def is_on_gpu(self) -> bool:
        """Whether the script has a GPU."""
        return self._backend.is_on_gpu

    def turn(self, label: Label) -> None:
        """Label the script's following computation."""
        self._backend.turn(label)

    def ask(self, request: Request) -> Any:
        """Handle a request of the script (see `Link.ask`)."""
        backend = self._backend
        if self._unrecorded is not None:
            self._ask_unrecorded(self._unrecorded, request)
            return None
        if isinstance(request, RecordMetric) and backend.is_on_gpu:  # the GPU's stream goes on
            self._record(request)
            return None
        at = backend.pause(begins_step=isinstance(request, StepEnd))
        try:
            match request:
                case StepEnd():
                    at = self._next_step(at)
                case RecordMetric():
                    self._record(request)
                case NewGroup(ranks):
                    self._group = self._rank.new_group(ranks)
                case ScriptEnd(seen):
                    self._leave("end", seen)
                case ScriptFailure(sentence):
                    self._leave("error", sentence)
        finally:
            backend.resume(at if isinstance(at, int) and backend.is_on_gpu else backend.lane.after(at))
        return None if self._unrecorded is None else self._unrecorded.end_step

    def _ask_unrecorded(self, steps: UnrecordedSteps, request: Request) -> None:
        """Handle a request after the recorded steps, which stay a valid run however the script ends."""
        match request:
            case StepEnd() if steps.end_step():
                self._leave("end", None)
            case NewGroup(ranks):
                self._group = self._rank.new_group(ranks)
            case ScriptFailure(sentence):
                print(f"note: after its {self._steps_begun:,} recorded steps: {sentence}", file=sys.stderr, flush=True)
                self._leave("end", None)
            case ScriptEnd():
                self._leave("end", None)

    def _record(self, metric: RecordMetric) -> None:
        """Record a number of this step; a GPU's host does not wait for it."""
        if self._step is not None:
            self._journal.record(metric.name, self._backend.lane.read(metric.value))

    def begin(self) -> None:
        """Start over with the world as the current group."""
        self._group = self._rank.world

    def store(self) -> Store:
        """Return the store of the process that has started this one, on the first rank's host."""
        if self._store is None:
            address, port = self._meeting
            self._store = TCPStore(address, int(port), is_master=False, wait_for_workers=False)
        return self._store

    def values_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor itself: real values are always known."""
        return tensor

    def join(self, options: Any, backends: Mapping[str, str]) -> WatchedGroup:
        """Create the process group that torch has requested, over the current group."""
        group = WatchedGroup(self._backend, self._rank, self._group, options, backends)
        self._groups.append(group)
        if self._unrecorded is not None:
            group.bypass()
        return group

    def wait_for_all(self) -> None:
        """Block until every rank's process has started."""
        self._send("ready", position(self._journal))
        self._connection.recv()

    def answer(self) -> None:
        """Answer each request for the script's position, on a thread of its own, and hand over finished rows.

        The parent requests the position after a while without a report: a step is long, or the script hangs.
        """
        while True:
            try:
                self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            # The main thread's frame, read from this thread, as the main thread may hang in a call.
            line = users_line(sys._current_frames()[self._main])
            if self._unrecorded is not None and self._is_moving(self._unrecorded):
                self._journal.moves += 1
            at = position(self._journal)
            if self._unrecorded is None:  # making rows would disturb a timed step
                self._hand_over()
            self._send("at", {**at, "last": line, "inside": True} if line and not at["inside"] else at)

    def _is_moving(self, steps: UnrecordedSteps) -> bool:
        """Return whether the script moves: a step has ended since the last request, or may still go on."""
        since_s, self._requested_s = self._requested_s, time.monotonic()
        return steps.ended_s >= since_s or self._is_usual(steps)

    def _is_usual(self, steps: UnrecordedSteps) -> bool:
        """Return whether a step may still go on without a call: a GPU's host may be far ahead, and wait."""
        return time.monotonic() - steps.ended_s < 2 * self._longest_s

    def _next_step(self, at: Mark) -> Mark:
        """End the current step at that moment and begin the next; after the last recorded step, end or go on
        unrecorded.

        Rows are handed over now and then between two steps: return when the next step has begun.
        """
        start: Mark | None = at
        if self._step is not None:
            self._longest_s = max(self._longest_s, time.monotonic() - self._stepped_s)
        self._stepped_s = time.monotonic()
        self._end_step(at)
        if self._steps_begun == self._steps:
            if not self.unrecorded_steps:
                self._leave("end", None)
            self._stop_recording()
            return at
        if time.monotonic() - self._rows_sent_s >= SPOOLED_EVERY_S:
            self._backend.lane.between_steps()
            self._hand_over()
            start = None
        self._step = self._backend.begin_step(self._steps_begun, start)
        self._steps_begun += 1
        self._send_step()
        return self._step.start

    def _stop_recording(self) -> None:
        """Stop recording: from now on only the times of `unrecorded_steps` further steps are kept."""
        backend, journal = self._backend, self._journal
        backend.lane.between_steps()
        self._hand_over()
        self._send("recorded", self._outcome_fields(None))
        journal.last = None  # calls are no longer recorded, so none may be reported as the rank's position
        if self.labels is not None:
            self.labels.end()
        self._unrecorded = UnrecordedSteps(
            journal, backend.lane, backend.stream, self._steps_begun, self.unrecorded_steps
        )
        for group in self._groups:
            group.bypass()

    def _outcome_fields(self, seen: Any) -> dict[str, Any]:
        """Return the fields of an `Outcome`."""
        return {"steps": self._steps_begun, "seen": seen, "has_called": self._backend.has_called}

    def _end_step(self, at: Mark | None = None, *, is_last: bool = False) -> None:
        if self._step is not None:
            self._backend.end_step(self._step, at)
            if is_last:  # the script has ended within this step
                self._journal.give_up(self._step)
                self._steps_begun -= 1
            self._step = None

    def _hand_over(self, *, is_last: bool = False) -> None:
        """Send the step, and the rows of finished spans."""
        # The main thread and the answering thread both send rows.
        with self._rows_lock:
            self._send_step(is_now=True)
            self._send("rows", self._journal.take(is_last=is_last))
            self._rows_sent_s = time.monotonic()

    def _send_step(self, *, is_now: bool = False) -> None:
        """Send the script's step, if it is new and the last report is not recent."""
        number, now_s = self._steps_begun - 1, time.monotonic()
        if number > self._reported_step and (is_now or now_s - self._reported_s >= STEP_S):
            self._reported_step, self._reported_s = number, now_s
            self._send("step", number)

    def _leave(self, kind: str, argument: Any) -> None:
        """Send the rest of the recording and how the script ended; then wait until this process is killed.

        Other ranks may still be receiving tensors that this process has sent.
        """
        if kind == "end":
            self._say_what_is_in_the_time()
        self._backend.settle()
        with self._rows_lock:  # the answering thread may be making rows
            self._end_step(is_last=True)
            if self._unrecorded is not None:
                self._unrecorded.note()
        self._hand_over(is_last=True)
        sys.stdout.flush()
        self._send(kind, self._outcome_fields(argument) if kind == "end" else argument)
        threading.Event().wait()

    def _say_what_is_in_the_time(self) -> None:
        """Print a note, once, if the script ended before enough unrecorded steps were timed."""
        timed = 0 if self._unrecorded is None else self._unrecorded.timed_steps
        if timed < min(self.unrecorded_steps, LEAST_UNRECORDED) and self._journal.rank == 0 and self._steps_begun:
            print(
                f"note: the step time includes the recording of every call: after {self._steps:,} recorded steps"
                f" (run.steps) and {SETTLING} untimed ones the script ended before {LEAST_UNRECORDED} steps were timed"
                " with the recording off",
                file=sys.stderr,
                flush=True,
            )

    def _send(self, kind: str, argument: Any) -> None:
        with self._lock:
            self._connection.send((kind, argument))
