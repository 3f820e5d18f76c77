"""Watches torch's data loaders: next to a GPU, times batches in workers and labels loading in the script's process."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from torch._utils import ExceptionWrapper
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import _utils, dataloader

from scenarios.modules.operators import tensors_in
from scenarios.workloads.recording.events.notes import LoadedBatch, NoteLeftOut
from scenarios.workloads.script.host.calls import passes_through, turns_of, without_counting
from scenarios.workloads.script.host.on_cpu import OnCpu
from scenarios.workloads.script.process.simulated import SimulatedLink
from scenarios.workloads.script.users_lines import users_line

_WORK: Any = _utils.worker._worker_loop  # torch's own, before `watch_loaders` replaces it
# Values that a worker hands over in place of a batch.
_SIGNALS = (ExceptionWrapper, _utils.worker._IterableDatasetStopIteration)
_OURS = "scenarios."  # modules of the simulation's modes
_ROOM = f"{Path(__file__).parents[4] / 'scenarios'}/"


class Timed:
    """A batch, with the CPU time in ns that a worker took to load it."""

    def __init__(self, data: Any, cpu_ns: int) -> None:
        self.data, self.cpu_ns = data, cpu_ns

    def pin_memory(self) -> Timed:
        """Pin the batch's memory; DataLoader's pinning thread calls this method of batches."""
        return Timed(_utils.pin_memory.pin_memory(self.data), self.cpu_ns)


def work(kind: Any, dataset: Any, indices: Any, batches: Any, *rest: Any, **more: Any) -> None:
    """Run a worker of torch's data loaders without the simulation's modes and profile function, timing each batch."""
    # A forked worker inherits the rank's profile function, which would slow down what is timed here.
    sys.setprofile(None)
    _time_batches(indices, batches)
    with _without_modes(_get_current_function_mode_stack()):
        _WORK(kind, dataset, indices, batches, *rest, **more)


@contextmanager
def _without_modes(functions: Sequence[Any]) -> Iterator[None]:
    """Switch off these function modes and all dispatch modes within the context; they slow down what is timed there."""
    modes = _get_current_function_mode_stack()
    for _ in modes:
        _pop_mode()
    for mode in modes:
        if mode not in functions:
            _push_mode(mode)
    try:
        with _disable_current_modes():
            yield
    finally:
        for _ in _get_current_function_mode_stack():
            _pop_mode()
        for mode in modes:
            _push_mode(mode)


def _time_batches(indices: Any, batches: Any) -> None:
    """Time a worker from taking indices off its queue until handing over their batch."""
    get, put, began_ns = indices.get, batches.put, 0

    def begin(*args: Any, **more: Any) -> Any:
        nonlocal began_ns
        found = get(*args, **more)
        began_ns = time.process_time_ns()
        return found

    def end(given: Any) -> None:
        number, data = given
        if data is not None and not isinstance(data, _SIGNALS):
            data = Timed(data, time.process_time_ns() - began_ns)
        put((number, data))

    indices.get, batches.put = begin, end


def watch_loaders(link: SimulatedLink, on_cpu: OnCpu) -> None:
    """Report each batch that workers load, and label loading in the script's own process."""
    loader: Any = dataloader._MultiProcessingDataLoaderIter
    own: Any = dataloader._SingleProcessDataLoaderIter  # in the script's process
    process, reset, advance = loader._process_data, loader._reset, own._next_data
    numbers, pid = count(), os.getpid()

    def process_timed(self: Any, data: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(data, Timed):
            data, turns = data.data, turns_of(data.cpu_ns, is_seen=False)
            if os.getpid() == pid:
                place = users_line(sys._getframe())
                link.ask(LoadedBatch(self._number, self._num_workers, self._prefetch_factor, turns, place))
        return process(self, data, *rest, **more)

    def reset_numbered(self: Any, *args: Any, **more: Any) -> None:
        self._number = next(numbers)
        reset(self, *args, **more)

    @passes_through
    def advance_labelled(self: Any) -> Any:
        with on_cpu.loading():
            return advance(self)

    base: Any = dataloader._BaseDataLoaderIter
    next_index = base._next_index

    @without_counting  # a sampler's generator, once per sample, is no call of a function
    def next_index_timed(self: Any) -> Any:
        began_ns = time.thread_time_ns()
        try:
            return next_index(self)
        finally:
            on_cpu.count_loaded(time.thread_time_ns() - began_ns)

    base._next_index = next_index_timed
    loader._process_data, loader._reset = process_timed, reset_numbered
    own._next_data = advance_labelled
    for fetcher in (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher):
        _time_fetches(fetcher, link, on_cpu)
    _utils.worker._worker_loop = work  # type: ignore[assignment]


def watch_queues(link: SimulatedLink) -> None:
    """Report once that a step takes from a queue that the script's own processes fill, whose time is not predicted."""
    kind: Any = Queue
    usual, pid, is_noted = kind.get, os.getpid(), os.environ["RANK"] != "0"

    @passes_through
    def get(queue: Any, *given: Any, **more: Any) -> Any:
        nonlocal is_noted
        if not is_noted and link.step() and os.getpid() == pid and multiprocessing.active_children():
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(_ROOM):  # other watchers' own
                frame = frame.f_back
            if frame.f_globals.get("__name__") != dataloader.__name__:  # whose workers are predicted
                is_noted = True
                link.ask(NoteLeftOut([f"time of processes that fill a queue ({users_line(frame)})"]))
        return usual(queue, *given, **more)

    kind.get = get


def _time_fetches(fetcher: Any, link: SimulatedLink, on_cpu: OnCpu) -> None:
    """Time the batches that a kind of fetcher takes in the script's process, as workers' batches are timed.

    The simulation watches each fetcher's first batch. If that needs no simulated GPU, the others do without it.
    """
    fetch, pid = fetcher.fetch, os.getpid()

    @without_counting
    def fetch_timed(self: Any, indices: Any) -> Any:
        ours = [mode for mode in _get_current_function_mode_stack() if type(mode).__module__.startswith(_OURS)]
        with _without_modes(ours):
            began_ns = time.thread_time_ns()
            try:
                return fetch(self, indices)
            finally:
                on_cpu.count_loaded(time.thread_time_ns() - began_ns)

    @passes_through
    def fetch_watched(self: Any, indices: Any) -> Any:
        if os.getpid() != pid or threading.current_thread() is not threading.main_thread():
            return fetch(self, indices)
        if getattr(self, "is_of_cpu", False):
            return fetch_timed(self, indices)
        launched, before = link.launched, len(link.launched or ())
        data = fetch(self, indices)
        # Requests replace the list of what was launched, and launches extend it.
        is_unused = link.launched is launched and len(link.launched or ()) == before
        self.is_of_cpu = is_unused and all(
            each.device.type == "cpu" and not each.is_pinned() for each in tensors_in(data)
        )
        return data

    fetcher.fetch = fetch_watched


class LeftOut:
    """A watch over DataLoader workers beside a CPU: that they were used in a step is reported, as it is not predicted.

    Rank 0 reports at the end of each step, for all ranks.
    """

    def __init__(self, link: SimulatedLink) -> None:
        self._link, self._is_used = link, False
        loader: Any = dataloader._MultiProcessingDataLoaderIter
        advance = loader._next_data

        def advance_watched(iterator: Any) -> Any:
            self._is_used = True
            return advance(iterator)

        loader._next_data = advance_watched

    def end_step(self) -> None:
        """Report the work of the ending step that is not predicted."""
        if self._is_used and os.environ["RANK"] == "0":
            self._link.ask(NoteLeftOut(["time of DataLoader workers"]))
        self._is_used = False
