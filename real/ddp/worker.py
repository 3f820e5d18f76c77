"""Reduces buckets in order on a thread of its own, concurrently with the backward pass.

A hook that waits inside a callback of the library's own threads can hang the library; this thread may wait safely.
"""

from __future__ import annotations

import functools
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from scenarios.do_nothing import do_nothing

Job = Callable[[], object]


class Track:
    """A place where the thread's work runs; this class is for CPUs, where work is over when it returns."""

    def follow(self) -> Job:
        """Return a job that makes the track wait for all that the caller has launched so far; call it on the caller's
        thread.
        """
        return do_nothing

    def enter(self) -> AbstractContextManager[object]:
        """Return a context in which work is launched on the track."""
        return nullcontext()

    def new_future(self) -> torch.futures.Future[Tensor]:
        """Return a future whose waiter continues after the work that was on the track when the result was set."""
        return torch.futures.Future()


class CudaTrack(Track):
    """A track on a GPU: a stream of its own. No method blocks the host."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def follow(self) -> Job:
        # An event, not a synchronisation: the caller's stream goes on while this stream waits.
        event = torch.cuda.current_stream(self._device).record_event()
        return functools.partial(self._stream.wait_event, event)

    def enter(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream)

    def new_future(self) -> torch.futures.Future[Tensor]:
        return torch.futures.Future(devices=[self._device])


@dataclass(frozen=True, slots=True)
class Promise:
    """A buffer that will be reduced in place, and the future that completes then."""

    buffer: Tensor
    track: Track
    future: torch.futures.Future[Tensor]

    def settle(self, error: Exception | None) -> None:
        """Complete the future, with an error if there is one."""
        with self.track.enter():
            if error is None:
                self.future.set_result(self.buffer)
            else:
                self.future.set_exception(error)  # type: ignore[arg-type]  # torch annotates it wrongly


class Worker:
    """A daemon thread that runs jobs in order; it ends when its `Worker` is collected.

    After a job has failed no further job runs: other ranks may wait in vain, and learn of the failure when this process
    ends.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._tracks: dict[torch.device, Track] = {}
        self._error: Exception | None = None
        # The thread knows the queue only: with a reference to its worker, it would keep itself alive.
        weakref.finalize(self, self._jobs.put, None)
        threading.Thread(target=_serve, args=(self._jobs,), name=f"gradient reduction {id(self)}", daemon=True).start()

    def promise(self, buffer: Tensor) -> Promise:
        """Register a buffer to be reduced; jobs submitted from now on see what the caller has written into it."""
        track = self._track(buffer.device)
        self._jobs.put(track.follow())
        return Promise(buffer, track, track.new_future())

    def submit(self, job: Job, device: torch.device) -> None:
        """Run a job after all earlier jobs, unless one of them has failed."""
        self._jobs.put(functools.partial(self._run, job, self._track(device)))

    def settle(self, promises: Sequence[Promise]) -> None:
        """Queue the completion of promises behind all earlier jobs."""
        for promise in promises:
            self._jobs.put(functools.partial(self._settle, promise))

    def join(self) -> None:
        """Wait until all submitted jobs have run (on a GPU: have been launched).

        Raises:
            Exception: the error of the first failed job, at this and every later call.
        """
        over = threading.Event()
        self._jobs.put(over.set)
        over.wait()
        if self._error is not None:
            raise self._error

    def _run(self, job: Job, track: Track) -> None:
        if self._error is not None:
            return
        try:
            with track.enter():
                job()
        # The thread lives on: `join` raises the error on the caller's thread, where the user sees it.
        except Exception as error:
            self._error = error

    def _settle(self, promise: Promise) -> None:
        promise.settle(self._error)

    def _track(self, device: torch.device) -> Track:
        if device not in self._tracks:
            self._tracks[device] = CudaTrack(device) if device.type == "cuda" else Track()
        return self._tracks[device]


def _serve(jobs: queue.SimpleQueue[Job | None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job()
        del job  # it may hold the last reference to the worker, whose collection ends this thread
