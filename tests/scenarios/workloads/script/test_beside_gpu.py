"""When batches that a data loader's workers load are there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from scenarios.config.host_costs import LOOP_TURNS, Eager
from scenarios.seam.host_work import HostWork
from scenarios.seam.rank import Rank
from scenarios.workloads.recording.events.notes import LoadedBatch
from scenarios.workloads.script.beside_gpu import BesideGpu
from scenarios.workloads.script.host.cpu_work import CpuWork
from scenarios.workloads.script.outcome import Outcomes
from tests.small import GPU, cluster, scenario

LOADS_NS = 4_000_000
TURNS = LOOP_TURNS  # a batch takes one loop


class Host:
    """A rank whose host computes for `step_ns` between two batches."""

    rank = 0

    def __init__(self) -> None:
        self.now_ns = 0

    def host_work(self, work: HostWork) -> int:
        self.now_ns += work.waits_ns
        return self.now_ns


class Told:
    """What of outcomes counts here."""

    def __init__(self) -> None:
        self.cpu_work = CpuWork(Eager(loop_ns=LOADS_NS))


def waits_ns(workers: int, step_ns: int, *, prefetch: int = 2, cores: int = 64, batches: int = 40) -> list[int]:
    """Return how long the host waits for each batch."""
    host, told = Host(), Told()
    gpu = replace(GPU, eager=Eager(loop_ns=LOADS_NS))
    beside = BesideGpu(cast(Rank, host), scenario(cluster(1, 1, gpu=gpu, cores=cores)), cast(Outcomes, told))
    found = []
    for _ in range(batches):
        before_ns = host.now_ns
        beside.hear(LoadedBatch(0, workers, prefetch, TURNS, "train.py:7"), is_in_step=True)
        found.append(host.now_ns - before_ns)
        host.now_ns += step_ns
    return found


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_step_is_as_long_as_loading_where_that_takes_longer(workers: int) -> None:
    step_ns = 100_000
    found = waits_ns(workers, step_ns)
    assert found[0] == LOADS_NS
    assert found[10:] == pytest.approx([LOADS_NS / workers - step_ns] * 30, abs=workers)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_loading_hides_behind_longer_steps(workers: int) -> None:
    found = waits_ns(workers, LOADS_NS // workers + 1_000)
    assert set(found[10:]) == {0}


def test_batches_that_are_ready_are_as_many_as_are_prefetched() -> None:
    """A long step lets each worker load two; then the host waits again."""
    host_ns = [*waits_ns(1, 100 * LOADS_NS, batches=2)]
    assert host_ns == [LOADS_NS, 0]


def test_workers_beyond_the_cores_share_them() -> None:
    alone, shared = waits_ns(3, 0, cores=4), waits_ns(3, 0, cores=2)
    assert sum(shared) == pytest.approx(2 * sum(alone), rel=0.01)


def test_words_are_means_over_steps_the_longest_first() -> None:
    work = CpuWork(Eager(loop_ns=LOADS_NS))
    for waited_ns in (0, 2_000_000):
        work.note_batch("train.py:7", 4, LOADS_NS, waited_ns)
    computed: Any = HostWork(cpu_bytes=12_000_000)
    work.note([("operators on CPU tensors", "train.py:9", computed), ("other work", "", HostWork(turns=100))])
    assert list(work.words(2, beside=False)) == [
        "data loading of 4 ms per batch in 4 workers (train.py:7), measured here, for which a step waits 1 ms",
        "500 us per step of operators on CPU tensors (train.py:9)",
    ]
    assert list(work.words(2, beside=True)) == []
