"""Stretches between calls of Python functions in which something else takes CPU time."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import nullcontext
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import BaseTorchFunctionMode, _get_current_function_mode_stack
from torch.utils.data import DataLoader, Dataset, _utils, dataloader

from scenarios.config.host_costs import LOOP_TURNS
from scenarios.modules.describing.host import HostCounter
from scenarios.workloads.script.host import calls
from scenarios.workloads.script.host.calls import CountedCalls, Stretches, turn_ns, turns_of
from scenarios.workloads.script.host.loading import watch_loaders


def loop(turns: int) -> int:
    added = 0
    for number in range(turns):
        added += number
    return added


def append(count: int) -> list[int]:
    made: list[int] = []
    for number in range(count):
        made.append(number)  # noqa: PERF402
    return made


def call(count: int) -> None:
    for _ in range(count):
        loop(1)


def index(count: int) -> None:
    places = np.zeros(count, int)
    with BaseTorchFunctionMode():
        for _ in range(5):
            torch.zeros(1)[places]


def collected_elsewhere(threads: int) -> None:
    for _ in range(threads):
        thread = threading.Thread(target=gc.collect)
        thread.start()
        thread.join()


class Samples(Dataset[int]):
    def __len__(self) -> int:
        return 1_000

    launched: list[str] | None = None

    def __getitem__(self, place: int) -> int:
        if self.launched is not None:
            self.launched.append("kernel")
        return place


class Modes(Dataset[int]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> int:
        return len(_get_current_function_mode_stack())


class _Simulations(BaseTorchFunctionMode):
    __module__ = "scenarios.of_a_test"


def load(batch_size: int) -> None:
    for _ in DataLoader(Samples(), batch_size, shuffle=True):
        pass


@pytest.fixture
def measured() -> Any:
    """Return what is measured of a call: ns by the name of the function in which it ends."""

    def of(function: Any, argument: int) -> tuple[dict[str, float], int]:
        found = dict[str, float]()

        def note(cpu_ns: float, frame: FrameType | None) -> None:
            assert frame is not None
            found[frame.f_code.co_name] = found.get(frame.f_code.co_name, 0) + cpu_ns

        counter = HostCounter()
        CountedCalls(counter, Stretches(note)).begin()
        try:
            function(argument)
        finally:
            sys.setprofile(None)
        return found, counter.calls

    return of


def test_a_loop_takes_its_turns(measured: Any) -> None:
    found, calls = zip(*(measured(loop, 100 * LOOP_TURNS) for _ in range(3)), strict=True)
    # The quickest: the processor may slow down after a turn has been timed.
    assert turns_of(min(each["loop"] for each in found)) == pytest.approx(100 * LOOP_TURNS, rel=0.5)
    assert max(calls) < 10


def test_work_that_no_profile_function_sees_has_turns_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and timed batches are such work, also where a profile function is set when their turns are computed."""
    profiles = list[object]()

    def time_loop() -> int:
        profiles.append(sys.getprofile())
        return LOOP_TURNS

    monkeypatch.setattr(calls, "_loop_ns", time_loop)
    sys.setprofile(see := lambda *_: None)
    try:
        calls.turn_ns.__wrapped__(is_seen=False)
        calls.turn_ns.__wrapped__(is_seen=True)
        assert sys.getprofile() is see
    finally:
        sys.setprofile(None)
    calls.turn_ns.__wrapped__(is_seen=True)
    assert {*map(type, profiles[:5])} == {type(None)}
    assert None not in profiles[5:]
    assert sys.getprofile() is None


def test_calls_that_are_counted_are_not_measured(measured: Any) -> None:
    found, calls = measured(call, 10_000)
    assert calls >= 10_000
    assert sum(found.values()) < 10_000 * 5 * turn_ns(
        is_seen=True
    )  # of more than 50 turns that they take, being counted


def test_seeing_calls_of_c_functions_is_not_what_they_take(measured: Any) -> None:
    """Each takes some turns, and being seen takes longer."""
    count = 50 * LOOP_TURNS
    found, _ = measured(append, count)
    assert 0.5 * count < turns_of(found["append"]) < 15 * count


def test_indexing_by_arrays_does_not_take_what_function_modes_add(measured: Any) -> None:
    """Torch reads their elements one by one where such a mode, as the simulation's, is on."""
    found, _ = measured(index, LOOP_TURNS)
    assert turns_of(found.get("index", 0)) < 5 * 5 * LOOP_TURNS


def test_garbage_collected_in_another_thread_is_not_measured(measured: Any) -> None:
    """Else all CPU time of this thread since it began would be a stretch: the other thread's clock is new."""
    found, _ = measured(collected_elsewhere, 3)
    assert turns_of(sum(found.values())) < 1_000 * LOOP_TURNS


@pytest.fixture
def loaded_ns(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[str]]:
    """Watch loaders for a test; return the ns of batches that are timed, and what is launched."""
    own, workers = dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter
    patched = [(own, "_next_data"), (workers, "_process_data"), (workers, "_reset"), (_utils.worker, "_worker_loop")]
    patched += [(kind, "fetch") for kind in (_utils.fetch._MapDatasetFetcher, _utils.fetch._IterableDatasetFetcher)]
    patched += [(dataloader._BaseDataLoaderIter, "_next_index")]
    for owner, name in patched:
        monkeypatch.setattr(owner, name, getattr(owner, name))  # restored afterwards
    timed_ns, launched = list[int](), list[str]()
    on_cpu: Any = SimpleNamespace(loading=nullcontext, launched=launched, count_loaded=timed_ns.append)
    watch_loaders(on_cpu, on_cpu)
    return timed_ns, launched


def test_batches_after_a_loaders_first_are_timed_not_counted(measured: Any, loaded_ns: Any) -> None:
    """The loader's method is the simulation's, which is not counted; what it calls is the script's."""
    assert 100 <= measured(load, 100)[1] < 1_000
    assert len(loaded_ns[0]) == 9 + 11  # and indices of 10 batches, and their end
    assert all(each > 0 for each in loaded_ns[0])


def test_calls_of_a_data_set_that_launches_kernels_are_counted(
    measured: Any, loaded_ns: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Samples, "launched", loaded_ns[1])
    assert measured(load, 100)[1] >= 1_000
    assert len(loaded_ns[0]) == 11


def test_a_batch_is_timed_with_the_scripts_function_modes_alone(loaded_ns: Any) -> None:
    """The simulation's modes, one of which is around that of the script here, see the first batch only."""
    with BaseTorchFunctionMode() as scripts, _Simulations() as ours:
        seen = [each.tolist() for each in DataLoader(Modes(), 1)]
        assert _get_current_function_mode_stack() == [scripts, ours]
    assert seen == [[2], [1], [1]]
