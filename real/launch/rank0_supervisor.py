"""The warden of a run without a launcher: a thread of rank 0 that hears all ranks and ends a run that cannot go on."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time

from real.launch.job import Job
from real.supervise.early_end import keep_what_there_is
from real.supervise.rank_status import Roll
from real.supervise.shared_steps import lay_out
from real.supervise.supervisor import Warden

_HEARING_S = 0.05
# What ranks that were just told to stop take to spool the rest, at most.
_SPOOLING_S = 0.5


class Host:
    """Listens from now on at the address that all ranks reach rank 0 at."""

    def __init__(self, job: Job, address: str, began_s: float) -> None:
        self._job, self._began_s = job, began_s
        self.token = secrets.token_hex(16)
        scenario = job.scenario
        self._roll = Roll(scenario.cluster.world_size, scenario.timeout_s, began_s, sees_exits=False)
        self._warden = Warden(address, self._roll, self.token)
        job.spool.mkdir(parents=True, exist_ok=True)
        self._steps = lay_out(job.spool, scenario.cluster.world_size)
        self._all_done = threading.Event()
        threading.Thread(target=self._watch, name="host", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where lines connect to."""
        return self._warden.address

    def wait_for_all(self) -> None:
        """Until every rank has said that it is done; a run that is over before ends the process instead."""
        self._all_done.wait()

    def _watch(self) -> None:
        while not self._roll.is_done:
            self._warden.hear(time.monotonic(), _HEARING_S)
            self._roll.see(self._steps.of_all(), time.monotonic())
            sentence = self._roll.verdict(time.monotonic())
            if sentence is not None:
                self._end(sentence)
        self._all_done.set()

    def _end(self, sentence: str) -> None:
        self._warden.stop(sentence)
        time.sleep(_SPOOLING_S)
        further = keep_what_there_is(self._job, sentence, self._began_s)
        print(sentence if further is None else f"{sentence}; {further}", file=sys.stderr, flush=True)
        os._exit(1)
