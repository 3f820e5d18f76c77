"""Laws of a CUDA lane, on a device in imagined time: what waits for what, what lives how long, when things were."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import torch
from torch import Tensor

from real.rank.cuda import Anchors, CudaLane, tensors_in
from real.rank.drive import Spawned, StreamThread, play
from real.rank.journal import Entry, Journal, metric
from real.rank.lanes import StreamLane
from real.supervise.control_channel import position
from real.supervise.rank_status import ENDED, RankStatusTable
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.kernel import Kernel
from tests.real.rank.fake_cuda import MS, NAME, Device, NcclWork, Stream, install

GEMM = Kernel(kind="gemm")


def lanes() -> tuple[CudaLane, CudaLane]:
    """The main one and another."""
    anchors = Anchors(NAME)
    return CudaLane(NAME, anchors, is_main=True), CudaLane(NAME, anchors, is_main=False)


def entry_of(lane: StreamLane, kind: str = "compute", group: str = "", index: int = -1) -> Entry:
    entry = Entry(lane, "main", kind, "", sequence=0)
    if group:
        entry.call, entry.index = Call(op=kind, group=Group(group, (0, 1)), rank=0), index
    return entry


class Buffer:
    """What can be watched, as a tensor's memory cannot."""


def spawn(lane: StreamLane, coroutine: Coroutine[Any, Any, Any], journal: Journal | None = None) -> Spawned[Any]:
    """What has been played to its end on the host."""
    spawned = Spawned(coroutine, journal or Journal(0, 0, 1), StreamThread("worker"), entry_of(lane, "spawn"))
    spawned.start()
    assert spawned._over.wait(10)
    return spawned


def alive_until_passed(device: Device, lane: CudaLane, watched: weakref.ref[Buffer], until_ns: int) -> None:
    gc.collect()
    device.idle(until_ns - device.now_ns - MS // 2)
    lane.let_go()
    assert watched() is not None, "the device still uses it"
    device.idle(MS)
    lane.let_go()
    gc.collect()
    assert watched() is None


def test_arguments_of_a_coroutine_live_until_the_device_has_used_them(device: Device) -> None:
    async def inner(given: Buffer) -> None:
        device.launch(5 * MS)

    async def outer(awaited: Coroutine[Any, Any, None]) -> None:
        await awaited

    _, side = lanes()
    for coroutine_of in (inner, lambda given: outer(inner(given))):
        buffer = Buffer()
        watched, began_ns = weakref.ref(buffer), device.now_ns
        spawned = spawn(side, coroutine_of(buffer))
        del buffer, spawned
        alive_until_passed(device, side, watched, began_ns + 5 * MS)


def test_arguments_of_a_kernel_on_another_stream_live_until_its_end(device: Device) -> None:
    main, side = lanes()
    buffer = Buffer()
    watched, began_ns = weakref.ref(buffer), device.now_ns
    side.run(entry_of(side), lambda given: device.launch(5 * MS), (buffer,))
    del buffer
    alive_until_passed(device, side, watched, began_ns + 5 * MS)
    buffer = Buffer()
    watched = weakref.ref(buffer)
    main.run(entry_of(main), lambda given: device.launch(5 * MS), (buffer,))
    del buffer
    assert watched() is None, "on its own stream memory is used again in order, and no step needs twice as much"


def test_a_collectives_buffers_live_until_it_has_ended_though_the_library_lets_go_of_them(device: Device) -> None:
    main, _ = lanes()
    buffer, library = Buffer(), Stream(device)
    watched, began_ns = weakref.ref(buffer), device.now_ns
    work: Any = NcclWork(library, lambda since_ns: since_ns + 5 * MS, buffer)
    pending = main.follow(entry_of(main, "all_reduce", "world", 0), work, None, buffer)
    pending.wait()
    assert work.stashed is None
    del buffer, pending, work
    alive_until_passed(device, main, watched, began_ns + 5 * MS)


class OnDevice(Tensor):
    """A tensor of the host that says it is the device's."""

    recorded: Any = None
    here: Device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def record_stream(self, stream: Any) -> None:
        self.recorded = stream

    def detach(self) -> OnDevice:
        return self

    def to(self, place: str, *, non_blocking: bool) -> Tensor:  # type: ignore[override]
        """Copied in the stream's order."""
        assert (place, non_blocking) == ("cpu", True)
        target = torch.full((), torch.nan)
        self.here.launch(0, lambda: target.copy_(self.as_subclass(Tensor)))
        return target


def on_device(value: float) -> OnDevice:
    return torch.tensor(value).as_subclass(OnDevice)


def test_a_result_lives_until_the_stream_that_awaited_it_is_through(device: Device) -> None:
    main, side = lanes()
    results = [on_device(0.0), on_device(1.0), on_device(2.0)]

    async def makes() -> dict[str, object]:
        return {"one": results[0], "others": [results[1]]}

    async def awaits(spawned: Spawned[Any]) -> object:
        return await spawned

    play(awaits(spawn(side, makes())), 0)
    assert [result.recorded for result in results] == [device.default, device.default, None]
    entry = entry_of(main)
    main.run(entry, lambda: results[2], ())
    assert entry.end is not None
    main.wait_for(entry.end, results[2])
    assert results[2].recorded is None, "its own stream uses it in order"
    assert list(tensors_in({"a": (results[0],), "b": GEMM, "c": 3.0})) == results[:1]


def ended_ns(entry: Entry) -> int:
    assert entry.end is not None
    return entry.lane.ns(entry.end)


def test_a_coroutine_waits_for_what_was_launched_before_it_was_spawned_and_for_no_more(device: Device) -> None:
    _, side = lanes()
    entry = entry_of(side)

    async def works() -> None:
        side.run(entry, device.launch, (MS,))

    began_ns = device.now_ns
    device.launch(3 * MS)
    coroutine = works()
    spawned = Spawned(coroutine, Journal(0, 0, 1), StreamThread("worker"), entry_of(side, "spawn"))
    device.launch(50 * MS)  # before the worker thread comes to it
    spawned.start()
    assert spawned._over.wait(10)
    device.synchronize()
    assert ended_ns(entry) - began_ns == pytest.approx(4 * MS, abs=0.1 * MS)
    assert "worker" in device.threads, "a thread begins on device 0"


def test_the_caller_goes_on_when_what_it_spawned_has_ended_on_the_device(device: Device) -> None:
    main, side = lanes()
    after = []

    async def works() -> None:
        device.launch(7 * MS)

    async def awaits(spawned: Spawned[Any]) -> None:
        await spawned
        after.append(entry_of(main))
        main.run(after[0], device.launch, (MS,))

    began_ns = device.now_ns
    play(awaits(spawn(side, works())), 0)
    assert device.now_ns - began_ns < MS, "the host has not waited"
    device.synchronize()
    assert ended_ns(after[0]) - began_ns == pytest.approx(8 * MS, abs=0.1 * MS)


def test_the_host_waits_for_the_stream_that_it_is_on_and_what_that_waits_for(device: Device) -> None:
    main, side = lanes()
    timed, began_ns = entry_of(side), device.now_ns
    side.run(timed, device.launch, (3 * MS,))
    side.run(entry_of(side), device.launch, (50 * MS,))
    assert timed.end is not None
    main.wait_for(timed.end)
    main.synchronize()
    assert device.now_ns - began_ns == pytest.approx(3 * MS, abs=0.1 * MS)


def test_checked_calls_wait_only_for_work_launched_before_their_issue(device: Device) -> None:
    main, _ = lanes()
    library, began_ns = Stream(device), device.now_ns
    device.launch(2 * MS)
    entry = entry_of(main, "all_reduce", "world", 0)
    device.launch(50 * MS)
    with main.beside(entry.start):
        work: Any = NcclWork(library, lambda since_ns: since_ns + MS, None)
        main.follow(entry, work, None)
    device.synchronize()
    assert ended_ns(entry) - began_ns == pytest.approx(3 * MS, abs=0.1 * MS)


def test_the_end_of_a_collective_is_not_that_of_another_groups_before_it(device: Device) -> None:
    main, _ = lanes()
    began_ns, entries, finished = device.now_ns, [], list[int]()
    for group, taken_ns in (("slow", 30 * MS), ("quick", MS)):
        entries.append(entry_of(main, "all_reduce", group, 0))
        work: Any = NcclWork(Stream(device), lambda since_ns, taken_ns=taken_ns: since_ns + taken_ns, None)  # type: ignore[misc]
        main.follow(entries[-1], work, lambda: device.launch(MS, lambda: finished.append(1)))
    device.synchronize()
    assert [ended_ns(entry) - began_ns for entry in entries] == [
        pytest.approx(31 * MS, abs=0.1 * MS),
        pytest.approx(2 * MS, abs=0.1 * MS),
    ]
    assert len(finished) == 2


STEP_NS, STEPS = 100 * MS, 50


def error_after_steps(device: Device, renew: Callable[[Anchors], None]) -> int:
    """Of the time of an event in the last of some steps, whose kernels go on all the time."""
    anchors = Anchors(NAME)
    for _ in range(STEPS):
        device.launch(STEP_NS)
        device.idle(STEP_NS)
        renew(anchors)
    event = device.event()
    event.record(device.default)
    device.finish(event.query)
    assert event.passed_ns is not None
    return abs(anchors.ns(event) - event.passed_ns)  # type: ignore[arg-type]


@pytest.mark.parametrize("parts_per_million", [-80, 0, 80])
def test_anchors_follow_a_clock_that_drifts(monkeypatch: pytest.MonkeyPatch, parts_per_million: int) -> None:
    noise = random.Random(4)
    drifting = Device(rate=1 + parts_per_million / 1e6, latency_ns=lambda: noise.randrange(1_000, 9_000))
    device = install(monkeypatch, drifting)
    assert error_after_steps(device, Anchors.renew) < 20_000
    lost_ns = abs(parts_per_million) * STEPS * STEP_NS / 1e6
    assert error_after_steps(device, lambda anchors: None) > 0.9 * lost_ns - 10_000


def test_an_anchor_is_renewed_without_waiting_for_the_device(device: Device) -> None:
    anchors = Anchors(NAME)
    device.launch(10_000 * MS)
    began_ns = device.now_ns
    anchors.renew()
    assert device.now_ns - began_ns < 0.1 * MS
    device.made[0].put(lambda since_ns: since_ns + 10_000 * MS)  # its stream shares a hardware queue with work
    began_ns = device.now_ns
    anchors.renew()
    assert device.now_ns - began_ns < 0.5 * MS
    event = device.event()
    event.record(Stream(device))
    assert event.query()
    assert event.passed_ns is not None
    assert abs(anchors.ns(event) - event.passed_ns) < 1_000, "the last anchor still counts"  # type: ignore[arg-type]


def test_a_slow_look_does_not_take_the_place_of_a_better_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = iter([2_000] * 40 + [0] * 1000)
    device = install(monkeypatch, Device(latency_ns=lambda: next(latencies)))
    anchors = Anchors(NAME)
    stream = Stream(device)
    before = device.event()
    before.record(stream)
    device.idle(MS)
    device.latency_ns = lambda: 60_000
    anchors.renew()
    after = device.event()
    after.record(stream)
    device.idle(MS)
    for event in (before, after):
        assert event.passed_ns is not None
        assert abs(anchors.ns(event) - event.passed_ns) < 2_000  # type: ignore[arg-type]


def test_old_events_are_measured_from_the_anchor_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    device = install(monkeypatch, Device(rate=1 + 1e-4))
    anchors = Anchors(NAME)
    events = []
    for _ in range(30):
        device.idle(STEP_NS)
        anchors.renew()
        events.append(device.event())
        events[-1].record(device.default)
    device.idle(MS)
    for event in events:
        assert event.passed_ns is not None
        assert abs(anchors.ns(event) - event.passed_ns) < 2_000  # type: ignore[arg-type]


def test_a_recorded_number_is_that_of_its_turn_and_nobody_waits_for_it(device: Device) -> None:
    main, _ = lanes()
    journal, began_ns = Journal(0, 0, 1), device.now_ns
    loss = on_device(0.0)
    OnDevice.here = device
    device.launch(5 * MS, lambda: loss.fill_(1.0))
    journal.record("loss", main.read(loss))
    device.launch(5 * MS, lambda: loss.fill_(2.0))
    journal.record("steps", main.read(3))
    assert device.now_ns - began_ns < MS
    assert [metric(row).name for row in journal.take()[1]] == ["steps"], "the other is not known yet"
    device.idle(20 * MS)
    (loss_metric,) = map(metric, journal.take(is_last=True)[1])
    assert (loss_metric.name, loss_metric.value) == ("loss", 1.0)
    with pytest.raises(ValueError, match="one element"):
        main.read(torch.zeros(2).as_subclass(OnDevice))


def hear(table: RankStatusTable, journals: list[Journal], now_s: float) -> None:
    for rank, journal in enumerate(journals):
        table.hear(rank, {"at": {"step": None, **position(journal)}}, now_s)


def issues_all(device: Device, lane: CudaLane, journal: Journal, taken_ns: int) -> None:
    """A kernel and two collectives, which do not end, to the end of the program."""
    kernel = entry_of(lane)
    journal.keep(kernel)
    lane.run(kernel, device.launch, (taken_ns,))
    for _ in range(2):
        entry = entry_of(lane, "all_reduce", "world", journal.next_call("world"))
        journal.keep(entry)
        work: Any = NcclWork(Stream(device), lambda since_ns: None, None)
        pending = lane.follow(entry, work, None)
        journal.wait_begins(entry)
        pending.wait()
        journal.wait_ends(entry, has_waited=True)
    journal.stage = ENDED


def test_a_device_that_stalls_is_named_by_what_it_has_begun_though_its_host_is_far_ahead(device: Device) -> None:
    table, journals = RankStatusTable(2, 60.0, 0.0, sees_exits=False), [Journal(rank, 0, 2) for rank in range(2)]
    for rank, (journal, (_, lane)) in enumerate(zip(journals, [lanes(), lanes()], strict=True)):
        table.came(rank, 0.0)
        with lane.enter(0):  # two ranks on one device, which share nothing of it
            issues_all(device, lane, journal, 10**15 if rank == 1 else MS)
    hear(table, journals, 1.0)
    device.idle(2 * MS)
    hear(table, journals, 2.0)
    assert table.verdict(60.9) is None
    hear(table, journals, 100.0)
    assert table.verdict(100.0) == (
        "rank 1 did not reach all_reduce on stream main (call 0 of group world) within 60 s;"
        " it stands in compute on stream main"
    )


def test_a_device_that_ends_something_has_moved(device: Device) -> None:
    main, _ = lanes()
    journal, moves = Journal(0, 0, 2), []
    for _ in range(3):
        entry = entry_of(main)
        journal.keep(entry)
        main.run(entry, device.launch, (MS,))
        moves.append(position(journal)["moves"])
    for _ in range(2):
        device.idle(MS + 1000)
        moves.append(position(journal)["moves"])
    assert moves == sorted(set(moves))
    assert position(journal)["last"] == "compute on stream main"
    assert position(journal)["waits"] == []
