"""Processes that play programs over gloo, kept alive across tests; every wait ends, and names the rank it waited for.

A play that goes wrong costs its processes: nobody knows in what state they are. New ones are forked from a server that
has imported torch, so that they come in milliseconds.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing
import multiprocessing.connection
import os
import pickle
import socket
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import PrefixStore, TCPStore

from real.launch.job import Check, Job
from real.launch.placement import Place
from real.rank.run import RankRun, is_second_hand, sentence_of
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording

TIMEOUT_S = 30.0
# After the first rank has gone wrong, others that go wrong by themselves may still say so.
NEWS_S = 0.3
# What every play needs, DDP, and the modules in which programs stand.
PRELOADED = ["real.rank.run", "tests.real.pool", "torch._dynamo", "pytest", "hypothesis", "tests.contract.worlds"]


@dataclass(frozen=True)
class Request:
    """One rank's part of one play."""

    job: Job
    place: Place
    program: bytes


@dataclass(frozen=True)
class Answer:
    """What became of it."""

    recording: Recording | None = None
    returned: bytes = b""
    error: str = ""
    is_second_hand: bool = False
    details: str = ""


class Pool:
    """At most as many processes as the largest world so far."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port = self._listener.getsockname()[1]
        self._store = TCPStore(
            "127.0.0.1", self._port, is_master=True, wait_for_workers=False, master_listen_fd=self._listener.detach()
        )
        self._workers: list[tuple[Any, Connection]] = []
        self._plays = 0

    def play(self, program: Program, scenario: Scenario, check: Check = "always") -> Recording:
        """The recording of a program on the scenario's ranks; `check` says which calls they compare.

        What a `Script` returned on each rank comes back into it.

        Raises:
            ProgramError: with the sentence of the lowest rank that went wrong by itself.
            TimeoutError: naming the ranks that did not answer.
        """
        size = scenario.cluster.world_size
        self._grow(size)
        self._plays += 1
        with tempfile.TemporaryDirectory() as spool:
            job = Job(
                scenario=scenario,
                program="",
                writer="",
                out=Path(spool) / "out",
                spool=Path(spool),
                started="now",
                check=check,
                start_s=0.0,  # the ranks are there, and nothing but the transport's time-out ends what hangs
            )
            try:
                for rank, (_, connection) in enumerate(self._workers[:size]):
                    connection.send(Request(job, self._place(rank, size), pickle.dumps(program)))
                answers = self._answers(size)
            except BaseException:
                self.close()  # an answer to this would be taken for one to the next
                raise
        return self._result(program, answers, size)

    def close(self) -> None:
        """End the processes."""
        for process, connection in self._workers:
            connection.close()
            process.kill()
            process.join(TIMEOUT_S)
        self._workers.clear()

    def _place(self, rank: int, size: int) -> Place:
        return Place(
            by="pool",
            rank=rank,
            world_size=size,
            local_rank=rank,
            address="127.0.0.1",
            port=self._port,
            attempt=self._plays,
        )

    def _grow(self, size: int) -> None:
        while len(self._workers) < size:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._workers.append((process, ours))

    def _answers(self, size: int) -> dict[int, Answer]:
        """Until all have answered; once one has gone wrong, for a moment more."""
        answers: dict[int, Answer] = {}
        ranks = {connection: rank for rank, (_, connection) in enumerate(self._workers[:size])}
        until_s = time.monotonic() + TIMEOUT_S
        while len(answers) < size and time.monotonic() < until_s:
            waiting = [connection for connection, rank in ranks.items() if rank not in answers]
            for ready in multiprocessing.connection.wait(waiting, max(0.0, until_s - time.monotonic())):
                assert isinstance(ready, Connection)
                answers[ranks[ready]] = _answer(ready, ranks[ready])
                if answers[ranks[ready]].error:
                    until_s = min(until_s, time.monotonic() + NEWS_S)
        return answers

    def _result(self, program: Program, answers: dict[int, Answer], size: int) -> Recording:
        wrong = [answers[rank] for rank in sorted(answers) if answers[rank].error]
        if wrong or len(answers) < size:
            self.close()
        first = next((answer for answer in wrong if not answer.is_second_hand), wrong[0] if wrong else None)
        if first is not None:
            raise ProgramError(first.error) from RuntimeError(first.details)
        if len(answers) < size:
            missing = [rank for rank in range(size) if rank not in answers]
            raise TimeoutError(f"ranks {missing} did not answer within {TIMEOUT_S:g} s")
        recording = answers[0].recording
        assert recording is not None, "rank 0 gathers the recording"
        for answer in answers.values():
            getattr(program, "returned", {}).update(pickle.loads(answer.returned))
        return recording


@functools.cache
def shared_pool() -> Pool:
    """The one pool of this test session; its processes are daemons and end with it."""
    return Pool()


def _answer(connection: Connection, rank: int) -> Answer:
    try:
        answer = connection.recv()
    except EOFError:
        return Answer(error=f"rank {rank}'s process ended")
    assert isinstance(answer, Answer)
    return answer


def _work(connection: Connection) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    gc.freeze()  # a collection would write to every page that the process shares with the server
    while True:
        try:
            request: Request = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_serve(request))
        gc.collect()  # groups in cycles: each has a thread that wakes a hundred times a second


def _serve(request: Request) -> Answer:
    place = request.place
    try:
        store = TCPStore(
            place.address, place.port, is_master=False, timeout=timedelta(seconds=TIMEOUT_S), wait_for_workers=False
        )
        prefixed = PrefixStore(f"play/{place.attempt}", store)
        program = pickle.loads(request.program)
        recording = RankRun(request.job, place, prefixed).play(program)
    except BaseException as error:
        return Answer(
            error=sentence_of(error, place.rank),
            is_second_hand=is_second_hand(error, place.rank),
            details=traceback.format_exc(),
        )
    # Pickled here and not by the connection, which would share tensors' memory by file descriptors.
    return Answer(recording=recording, returned=pickle.dumps(getattr(program, "returned", {})))
