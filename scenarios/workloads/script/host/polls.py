"""Polls of the host: queries of an event, a stream or a call."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from types import FrameType
from typing import Any, Literal

from scenarios.workloads.recording.events.waits import Query, Sleep, SynchronizeCall

# A poll takes the host 1 us; after this many of one target with no launch in between, the host waits for the target.
MOST_POLLS = 1_000
# Real seconds between two polls beside a thread that works; simulated ns of the first and the last of the sleeps,
# each twice as long as the one before, between polls beside a thread that waits.
_LOOKING_S, _FIRST_SLEEP_NS, _LAST_SLEEP_NS = 0.01, 1_000, 1 << 30
_LONG_S = 30.0


class Polls:
    """A rank's polls of simulated time, through its `link`."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._not_over = Counter[Query]()  # polls answered with no since the host's last other work
        self.stepping = threading.main_thread()  # that ended the last step

    def end(self) -> None:
        """Reset the count of polls: the host does something else."""
        self._not_over.clear()

    def is_over(self, kind: Literal["event", "stream", "call"], number: int) -> bool:
        """Return whether an "event", "stream" or "call" is over in simulated time, by its number.

        A polling loop ends in a wait. The wait takes no time here, as the last poll says yes, but a replay on slower
        hardware waits there.
        """
        link, look = self._link, Query(kind, number)
        if link.is_captured:
            return True
        if link.launched:
            self.end()
        is_over = link.ask(look) is not False
        if not is_over:
            self._not_over[look] += 1
            is_over = self._not_over[look] >= MOST_POLLS
        if is_over and self._not_over[look]:
            self._wait(kind, number)
        return is_over

    def wait_beside(self, call: int) -> None:
        """Return once a call is over, if this thread is not the one that makes steps, which goes on meanwhile.

        A request that waits would hold back the requests of all threads, and a checkpoint's thread may wait for ranks
        whose own thread for it waits for the steps of this rank. While the thread of the steps waits for another
        thread, polls let simulated time pass; after the last sleep a wait for the call shows what it waits for.
        """
        sleep_ns = _FIRST_SLEEP_NS
        while self.stepping is not threading.current_thread() and self.stepping.is_alive():
            if sleep_ns > _LAST_SLEEP_NS or self._link.ask(Query("call", call), is_beside=True):
                return
            if _waits_for_thread(sys._current_frames().get(self.stepping.ident or 0)):
                self._link.ask(Sleep(sleep_ns), is_beside=True)
                sleep_ns *= 2
            else:
                time.sleep(_LOOKING_S)

    def _wait(self, kind: str, number: int) -> None:
        if kind == "event":
            self._link.synchronize_event(number)
        elif kind == "stream":
            self._link.synchronize(number)
        else:
            self._link.ask(SynchronizeCall(number))


def _waits_for_thread(frame: FrameType | None) -> bool:
    """Return whether a thread's innermost frame waits in a lock, without a time-out or with a long one.

    Short time-outs are those of loops that look for something else, such as a data loader's batch.
    """
    if frame is None or frame.f_code.co_filename != threading.__file__:
        return False
    timeout_s = frame.f_locals.get("timeout")
    return timeout_s is None or not 0 <= timeout_s < _LONG_S
