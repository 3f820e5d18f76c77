"""Supervises a run under torchrun or srun from a thread of rank 0, and ends it when it cannot go on."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time

from real.launch.job import Job
from real.supervise.early_end import keep_what_there_is
from real.supervise.rank_status import RankStatusTable
from real.supervise.shared_steps import lay_out
from real.supervise.supervisor import Supervisor

_HEARING_S = 0.05
# What ranks that were just told to stop take to spool the rest, at most.
_SPOOLING_S = 0.5


class Rank0Supervisor:
    """Listens at the address at which all ranks reach rank 0; starts its thread at once."""

    def __init__(self, job: Job, address: str, began_s: float) -> None:
        self._job, self._began_s = job, began_s
        self.token = secrets.token_hex(16)
        scenario = job.scenario
        self._table = RankStatusTable(scenario.cluster.world_size, scenario.timeout_s, began_s, sees_exits=False)
        self._supervisor = Supervisor(address, self._table, self.token)
        job.spool.mkdir(parents=True, exist_ok=True)
        self._steps = lay_out(job.spool, scenario.cluster.world_size)
        self._all_done = threading.Event()
        threading.Thread(target=self._watch, name="rank 0 supervisor", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, for control channels to connect to."""
        return self._supervisor.address

    def wait_for_all(self) -> None:
        """Wait until every rank has said that it is done; a run that ends early ends the process instead."""
        self._all_done.wait()

    def _watch(self) -> None:
        while not self._table.is_done:
            self._supervisor.hear(time.monotonic(), _HEARING_S)
            self._table.see(self._steps.of_all(), time.monotonic())
            sentence = self._table.verdict(time.monotonic())
            if sentence is not None:
                self._end(sentence)
        self._all_done.set()

    def _end(self, sentence: str) -> None:
        self._supervisor.stop(sentence)
        time.sleep(_SPOOLING_S)
        further = keep_what_there_is(self._job, sentence, self._began_s)
        print(sentence if further is None else f"{sentence}; {further}", file=sys.stderr, flush=True)
        os._exit(1)
