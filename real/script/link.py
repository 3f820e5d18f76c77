"""A script's process on a real rank: runs it as torchrun would, and tells the process that started it what it did."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Mapping
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
from real.supervise.control_channel import STEP_S, position
from real.supervise.rank_status import PLAYING
from scenarios.seam.group import Group
from scenarios.seam.rank import Rank
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.process.children import stand_alone
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.player import play
from scenarios.workloads.script.process.process_group import users_line


class Place(NamedTuple):
    """Where a script's rank is."""

    rank: int
    host: int
    world_size: int
    local_world_size: int


def main(
    connection: Connection,
    place: Place,
    steps: int,
    script: Script,
    env: Mapping[str, str],
) -> None:
    """Run the script for as many steps after its first; tell of each, and of where it stands when asked.

    What is sent is a pair: "ready" and "at" with a position as of `real.supervise.rank_status`; "step" and its number;
    "rows" and those of spans and of metrics; "end" and the fields of an `Outcome`; "error" and a sentence, with the
    script's frames below it.
    """
    die_with(os.getppid())
    stand_alone()
    os.environ.update(env)
    link = WatchedLink(connection, place, steps)
    if not link.is_on_gpu:  # whose ends no thread of the library's has to tell
        sys.setswitchinterval(SWITCH_INTERVAL_S)
    if not link.is_on_gpu or place.local_world_size > 1:  # else torchrun leaves a script all threads
        torch.set_num_threads(1)
    link.wait_for_all()
    threading.Thread(target=link.answer, daemon=True).start()
    if script.is_cut and not (script.is_on_default and link.is_on_gpu):
        Labels(link.turn)
    play(script, link)


class WatchedLink:
    """See `Link`: a rank's way to the process that started it."""

    def __init__(self, connection: Connection, place: Place, steps: int) -> None:
        self._connection, self._steps, self._lock = connection, steps, threading.Lock()
        self._journal = Journal(place.rank, place.host, place.world_size)
        self._journal.stage = PLAYING
        self._backend = WatchingBackend(self._journal, place.world_size, place.local_world_size)
        self._rank = Rank(self._backend)
        self._group: Group = self._rank.world
        self._made: list[
            WatchedGroup
        ] = []  # which stay: taking gloo down with callbacks under way may hang (torch 2.13)
        self._main = threading.get_ident()
        self._meeting = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        self._store: Store | None = None
        self._step: Entry | None = None
        self._begun = 0
        self._handing, self._handed_s = threading.Lock(), time.monotonic()
        self._told, self._told_s = -1, -math.inf

    @property
    def is_on_gpu(self) -> bool:
        """Whether the script has a GPU."""
        return self._backend.is_on_gpu

    def turn(self, label: str) -> None:
        """What the script computes from now on is for that."""
        self._backend.turn(label)

    def ask(self, kind: str, argument: Any = None) -> Any:
        """See `Link.ask`."""
        backend = self._backend
        if kind == "record" and backend.is_on_gpu:  # whose stream goes on
            self._record(*argument)
            return
        at = backend.pause(begins_step=kind == "step")
        try:
            if kind == "step":
                at = self._next_step(at)
            elif kind == "record":
                self._record(*argument)
            elif kind == "new_group":
                self._group = self._rank.new_group(argument)
            elif kind in ("end", "error"):
                self._leave(kind, argument)
        finally:
            backend.resume(at if isinstance(at, int) and backend.is_on_gpu else backend.lane.after(at))

    def _record(self, name: str, value: torch.Tensor) -> None:
        """Keep a number of this step, for which a GPU's host does not wait."""
        if self._step is not None:
            self._journal.record(name, self._backend.lane.read(value))

    def begin(self) -> None:
        """See `Link.begin`."""
        self._group = self._rank.world

    def store(self) -> Store:
        """See `Link.store`: that of the process that has started this one, on the first rank's host."""
        if self._store is None:
            address, port = self._meeting
            self._store = TCPStore(address, int(port), is_master=False, wait_for_workers=False)
        return self._store

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """See `Link.known`."""
        return tensor

    def join(self, options: Any, backends: Mapping[str, str]) -> WatchedGroup:
        """See `Link.join`."""
        made = WatchedGroup(self._backend, self._rank, self._group, options, backends)
        self._made.append(made)
        return made

    def wait_for_all(self) -> None:
        """Until the scripts of all ranks may begin."""
        self._tell("ready", position(self._journal))
        self._connection.recv()

    def answer(self) -> None:
        """On a thread of its own: tell where the script stands, whenever that is asked, and what is finished.

        It is asked where nothing was told for a while: a step is long, or the script hangs.
        """
        while True:
            try:
                self._connection.recv()
            except (EOFError, OSError):
                os._exit(1)
            line = users_line(sys._current_frames()[self._main])
            at = position(self._journal)
            self._hand_over()
            self._tell("at", {**at, "last": line, "inside": True} if line and not at["inside"] else at)

    def _next_step(self, at: Mark) -> Mark:
        """End the step that is over at that moment, begin the next; after the last one the script has ended.

        Rows are made now and then, between two steps: return when the next one has begun.
        """
        start: Mark | None = at
        self._end_step(at)
        if self._begun == self._steps:
            self._leave("end", None)
        if time.monotonic() - self._handed_s >= SPOOLED_EVERY_S:
            self._backend.lane.between_steps()
            self._hand_over()
            start = None
        self._step = self._backend.begin_step(self._begun, start)
        self._begun += 1
        self._tell_step()
        return self._step.start

    def _end_step(self, at: Mark | None = None, *, is_last: bool = False) -> None:
        if self._step is not None:
            self._backend.end_step(self._step, at)
            if is_last:  # the script has ended in it
                self._journal.give_up(self._step)
                self._begun -= 1
            self._step = None

    def _hand_over(self, *, is_last: bool = False) -> None:
        """Tell the step, and the rows of what is finished."""
        with self._handing:
            self._tell_step(is_now=True)
            self._tell("rows", self._journal.take(is_last=is_last))
            self._handed_s = time.monotonic()

    def _tell_step(self, *, is_now: bool = False) -> None:
        """Tell the step that the script is in, if that is new, and was not told a moment ago."""
        number, now_s = self._begun - 1, time.monotonic()
        if number > self._told and (is_now or now_s - self._told_s >= STEP_S):
            self._told, self._told_s = number, now_s
            self._tell("step", number)

    def _leave(self, kind: str, argument: Any) -> None:
        """Stay until this process is ended, as others may still read what it has sent."""
        self._backend.settle()
        with self._handing:  # the thread that answers may be making rows
            self._end_step(is_last=True)
        self._hand_over(is_last=True)
        sys.stdout.flush()
        ended = {"steps": self._begun, "seen": argument, "has_called": self._backend.has_called}
        self._tell(kind, ended if kind == "end" else argument)
        threading.Event().wait()

    def _tell(self, kind: str, argument: Any) -> None:
        with self._lock:
            self._connection.send((kind, argument))
