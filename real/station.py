"""One rank as a process: it finds the others, plays, and leaves in time whatever happens to it or to them.

Under our launcher the warden is there. Under torchrun and srun, rank 0 brings one up; when rank 0 itself is lost, the
first rank that notices keeps what was measured.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed import Store

from real.clock import SAME_CLOCK, Sight
from real.ending import keep_what_there_is, log_of, put_away
from real.job import Job
from real.line import Line
from real.place import PARENT, STORE_FD, TOKEN, WARDEN, Place
from real.roll import SECOND_HAND_S, Roll
from real.run import RankRun, sentence_of
from real.warden import Warden
from scenarios.errors import RankLostError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# A rank that has told of its end is told to go; if not, it goes.
_LEAVE_S = 2 * SECOND_HAND_S + 1.0


class Station:
    """One rank's process under torchrun, srun or our launcher."""

    def __init__(self, job: Job, place: Place) -> None:
        self._job, self._place = job, place
        self._began_s = time.monotonic()
        self._run: RankRun | None = None
        self._line: Line | None = None
        self._host: _Host | None = None

    def serve(self) -> int:
        """Play to the end. The exit code: 0, or 1 when the run is over before its end."""
        try:
            recording = self._play()
            if recording is not None:
                self._job.write(recording)
                if self._host is not None:
                    put_away(self._job)
            self._leave()
        except BaseException as error:
            self._fail(error)
            return 1
        return 0

    @property
    def out(self) -> Path:
        """The run's folder."""
        return self._job.out

    def _play(self):  # type: ignore[no-untyped-def]
        raise NotImplementedError
