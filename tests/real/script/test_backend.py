"""What a script's process does with a GPU, on a device in imagined time: few events, no waits, right rows."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore

from real.rank.cuda import Anchors, CudaLane
from real.rank.journal import STEP
from real.script import backend as script_backend
from real.script.link import RankPlace, WatchedLink
from real.script.process_group import WatchedGroup
from real.script.unrecorded import SETTLING
from scenarios.workloads.recording.events.calls import NewGroup
from scenarios.workloads.recording.events.notes import RecordMetric, ScriptFailure, StepEnd
from scenarios.workloads.script.process.process_group import BEGINNING, ScriptGroup, TorchCall
from tests.real.rank.fake_cuda import NAME, Device, Event, NcclWork, Stream, install

MS = 1_000_000


class Told:
    """The other end of a link's connection."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []

    def send(self, said: tuple[str, Any]) -> None:
        self.said.append(said)


class Library:
    """NCCL in imagined time: a call lasts 3 ms on a stream of its own, or on the caller's if it is awaited at once."""

    def __init__(self, device: Device) -> None:
        self.device, self.stream = device, Stream(device)

    def __getattr__(self, name: str) -> Any:
        """A call that no step here makes."""
        return None

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        ends: Callable[[int], int | None] = lambda since_ns: since_ns + 3 * MS  # noqa: E731
        if opts.asyncOp:
            return NcclWork(self.stream, ends, tensors)
        self.device.current.put(ends)
        return SimpleNamespace(wait=lambda: None)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: NAME.index)
    return install(monkeypatch, Device())


class Script:
    """A script of one rank: its link, its group, and how often it used the device."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device, self.told, self.used = device, Told(), Counter[str]()
        self.begun: Any = None
        library = Library(device)
        monkeypatch.setattr(WatchedGroup, "_make", lambda *_: dist.ProcessGroup(0, 1))  # type: ignore[call-arg]
        monkeypatch.setattr(script_backend, "Nccl", lambda _: SimpleNamespace(new_lane=self._lane))
        self.link = WatchedLink(self.told, RankPlace(0, 0, 1, 1), 100)  # type: ignore[arg-type]
        self.link.begin()
        options = SimpleNamespace(global_ranks_in_group=[], group_size=1, group_rank=0, store=HashStore())
        monkeypatch.setattr(WatchedGroup, "__init__", _without_groups_of_torchs)
        self.group = self.link.join(options, {"cuda": "nccl"})
        self.group._inner = library
        for kind, name in ((Event, "record"), (Stream, "synchronize"), (Device, "synchronize"), (Event, "query")):
            monkeypatch.setattr(kind, name, self._count(name, getattr(kind, name)))

    def _lane(self, *, is_main: bool) -> Any:
        return CudaLane(NAME, Anchors(NAME), is_main=is_main)

    def _count(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*given: Any) -> Any:
            self.used[name] += 1
            return function(*given)

        return count

    def all_reduce(self, tensor: torch.Tensor, *, is_async: bool) -> Any:
        options = dist.AllreduceOptions()
        options.asyncOp = is_async
        work = self.group.allreduce([tensor], options)
        return work if is_async else work.wait()

    def rows(self) -> list[dict[str, Any]]:
        self.device.finish(lambda: not any(stream.queue for stream in self.device.streams))
        self.link._hand_over()
        found = [row for kind, argument in self.told.said if kind == "rows" for row in argument[0]]
        return [
            {"kind": row[5], "label": row[6], "start": row[10], "end": row[11], "waits": row[13] - row[12]}
            for row in sorted(found, key=lambda row: row[4])
        ]


def _without_groups_of_torchs(
    self: WatchedGroup, backend: Any, rank: Any, group: Any, options: Any, backends: Any
) -> None:
    super(WatchedGroup, self).__init__(options, backends)
    self._backend, self._rank, self._group, self._known = backend, rank, group, {}


@pytest.fixture
def script(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    token = STEP.set(-1)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")  # nobody meets there
    yield Script(device, monkeypatch)
    STEP.reset(token)


def a_step(script: Script, modules: int = 0) -> None:
    """Compute 5 ms, sum up at once, compute 5 ms beside another sum, and 1 ms behind it."""
    layers = [nn.Linear(2, 2) for _ in range(modules)]
    script.device.launch(5 * MS)
    script.all_reduce(torch.ones(4), is_async=False)
    work = script.all_reduce(torch.ones(4), is_async=True)
    for layer in layers:
        layer(torch.ones(2))
    script.device.launch(5 * MS)
    work.wait()
    script.device.launch(1 * MS)
    script.link.ask(RecordMetric("loss", torch.tensor(0.5)))
    script.link.ask(StepEnd())


def test_a_step_takes_one_event_a_call_two_or_three_and_the_host_waits_for_none(script: Script) -> None:
    """Whatever modules there are; an asynchronous call has one more, where its end is followed."""
    script.link.ask(StepEnd())
    for modules in (0, 0, 30):
        script.used.clear()
        a_step(script, modules)
        assert script.used["record"] <= 1 + 2 + 3 + 2  # the fake library's own two are among them
        assert script.used["synchronize"] == 0
        assert script.used["query"] <= 2  # of what the library may let go of


def test_rows_are_made_apart_from_the_steps(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second, between the end of a step and the beginning of the next."""
    script.link.ask(StepEnd())
    script.told.said.clear()
    for _ in range(5):
        a_step(script)
    assert not [kind for kind, _ in script.told.said if kind == "rows"]
    monkeypatch.setattr("real.script.link.SPOOLED_EVERY_S", 0.0)
    a_step(script)
    assert [kind for kind, _ in script.told.said if kind == "rows"]


def test_rows_say_when_the_device_did_what(script: Script) -> None:
    script.link.ask(StepEnd())
    a_step(script)
    rows = [row for row in script.rows() if row["kind"] != "step"]
    taken = [(row["kind"], round((row["end"] - row["start"]) / MS), round(row["waits"] / MS)) for row in rows]
    assert taken == [
        ("compute", 5, 0),
        ("all_reduce", 3, 3),
        ("compute", 0, 0),
        ("all_reduce", 3, 0),  # hidden by what is computed meanwhile
        ("compute", 5, 0),
        ("compute", 1, 0),
    ]


def test_finished_rows_of_a_hanging_script_are_handed_over(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread that is asked where the script stands."""
    script.link.ask(StepEnd())
    a_step(script)
    script.told.said.clear()
    asked = threading.Event()

    def recv() -> str:
        if asked.is_set():
            raise EOFError
        asked.set()
        return "at"

    script.told.recv = recv  # type: ignore[attr-defined]
    script.device.finish(lambda: not any(stream.queue for stream in script.device.streams))
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit):
        script.link.answer()
    assert [kind for kind, _ in script.told.said] == ["step", "rows", "at"]
    assert script.told.said[0] == ("step", 1)


class HostsWork:
    """A call of gloo's, for which the host waits; its future tells when it has ended."""

    def __init__(self) -> None:
        self.waits, self.future = 0, torch.futures.Future[list[torch.Tensor]]()

    def wait(self) -> bool:
        self.waits += 1
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        return self.future


def test_an_async_call_of_tensors_on_the_host_does_not_keep_the_host_of_a_gpu(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for where the script does, and ends where gloo says, on the host's clock."""
    made = HostsWork()
    monkeypatch.setattr(script.group._inner, "allreduce", lambda *_: made, raising=False)
    script.group._backends = {"cpu": "gloo", "cuda": "nccl"}
    script.link.ask(StepEnd())
    script.device.launch(5 * MS)
    work = script.all_reduce(torch.ones(4), is_async=True)
    assert made.waits == 0
    made.future.set_result([])
    work.wait()
    assert made.waits == 1
    script.device.launch(1 * MS)
    script.link.ask(StepEnd())
    rows = script.rows()
    assert [row["kind"] for row in rows if row["kind"] != "step"][:2] == ["compute", "all_reduce"]
    assert all(row["end"] >= row["start"] for row in rows)


def test_a_call_without_tensors_is_nccls_where_it_is_there(script: Script) -> None:
    asked = TorchCall(
        verb="barrier", label="", inputs=[], targets=[], outputs=[], result=None, native=("barrier", ()), is_async=False
    )
    assert not script.group._is_hosts(asked)
    script.group._backends = {"cpu": "gloo", "cuda": "gloo"}
    assert script.group._is_hosts(asked)


RECORDED, TIMED = 2, 4


class _EndedError(Exception):
    """The script's process would stay here until it is ended."""


@pytest.fixture
def unrecorded(script: Script, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Return a script that has made its recorded steps, with a call begun in the last of them: `script.begun`."""

    def wait(_: Any) -> None:
        raise _EndedError

    monkeypatch.setattr(threading.Event, "wait", wait)
    script.link._steps, script.link.unrecorded_steps = RECORDED, TIMED
    script.link.ask(StepEnd())
    a_step(script)
    script.begun = script.all_reduce(torch.ones(4), is_async=True)
    a_step(script)
    return script


def test_a_step_with_the_recording_off_takes_one_event_and_nothing_else(unrecorded: Script) -> None:
    library, plain = unrecorded.group._inner, Counter[str]()
    for number in range(SETTLING + TIMED - 1):
        unrecorded.used.clear()
        a_step(unrecorded)
        if not number:
            options = dist.AllreduceOptions()
            used = unrecorded.used.copy()
            for options.asyncOp in (False, True):
                library.allreduce([torch.ones(4)], options)
            plain = unrecorded.used - used
        assert unrecorded.used["record"] <= 1 + 2 * plain["record"]
        assert unrecorded.used["synchronize"] == unrecorded.used["query"] == 0
    unrecorded.told.said.clear()
    assert unrecorded.link._unrecorded is not None
    unrecorded.link._unrecorded.note()  # as the main thread does at the end
    found = [row for row in unrecorded.rows() if row["label"].startswith("step") and int(row["label"][5:]) >= RECORDED]
    first = RECORDED + SETTLING
    assert [row["label"] for row in found] == [f"step {number}" for number in range(first, first + TIMED - 1)]
    # 5 ms, the sum that is awaited at once, 5 ms that hide the other one, and 1 ms
    assert [round((row["end"] - row["start"]) / MS) for row in found] == [14] * (TIMED - 1)
    rows = [argument for kind, argument in unrecorded.told.said if kind == "rows"]
    assert {row[5] for spans, _ in rows for row in spans if row[3] < 0} <= {"step"}
    assert not [metrics for _, metrics in rows if metrics]


def test_a_script_ends_behind_its_unrecorded_steps(unrecorded: Script) -> None:
    assert ("recorded", {"steps": RECORDED, "seen": None, "has_called": True}) in unrecorded.told.said
    for _ in range(SETTLING + TIMED - 1):
        a_step(unrecorded)
    with pytest.raises(_EndedError):
        a_step(unrecorded)
    assert unrecorded.told.said[-1] == ("end", {"steps": RECORDED, "seen": None, "has_called": True})


def test_recorded_calls_are_awaited_as_recorded_calls(unrecorded: Script) -> None:
    unrecorded.begun.wait()
    rows = [row for row in unrecorded.rows() if row["kind"] == "all_reduce"]
    assert len(rows) == 2 * RECORDED + 1
    assert all(round((row["end"] - row["start"]) / MS) >= 3 for row in rows)


def test_later_groups_bypass_recording_too(unrecorded: Script) -> None:
    unrecorded.link.ask(NewGroup([0]))
    assert unrecorded.link._group.ranks == (0,)
    assert "allreduce" in vars(unrecorded.group)
    assert isinstance(unrecorded.all_reduce(torch.ones(4), is_async=True), NcclWork)


def test_coalesced_calls_are_waited_for_together(unrecorded: Script) -> None:
    unrecorded.group._start_coalescing(NAME)
    works = [unrecorded.all_reduce(torch.ones(4), is_async=True) for _ in range(2)]
    assert unrecorded.group._end_coalescing(NAME)._works == works  # type: ignore[attr-defined]


def test_a_script_that_fails_behind_its_recorded_steps_is_a_run(
    unrecorded: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(_EndedError):
        unrecorded.link.ask(ScriptFailure("train.py:3: StopIteration"))
    assert unrecorded.told.said[-1][0] == "end"
    said = capsys.readouterr().err
    assert "after its 2 recorded steps: train.py:3: StopIteration" in said
    assert "the script ended before 3 steps were timed with the recording off" in said


def test_position_requests_disturb_no_unrecorded_step(unrecorded: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a call is a move, so that a long step does not pass for one that hangs."""
    moves = []
    for _ in range(2):
        unrecorded.told.said.clear()
        asked = iter(["at"])

        def recv(asked: Iterator[str] = asked) -> str:
            for word in asked:
                return word
            raise EOFError

        unrecorded.told.recv = recv  # type: ignore[attr-defined]
        monkeypatch.setattr("os._exit", sys.exit)
        with pytest.raises(SystemExit):
            unrecorded.link.answer()
        ((kind, at),) = unrecorded.told.said
        assert (kind, at["inside"], at["waits"]) == ("at", True, [])
        assert at["last"].startswith("test_backend.py:")
        moves.append(at["moves"])
        unrecorded.all_reduce(torch.ones(4), is_async=True)
    assert moves[1] > moves[0]


def test_a_long_step_moves_as_long_as_recorded_ones_took(unrecorded: Script) -> None:
    steps = unrecorded.link._unrecorded
    assert steps is not None
    unrecorded.link._longest_s = 100.0
    steps.ended_s = time.monotonic() - 150.0
    assert unrecorded.link._is_usual(steps)
    steps.ended_s = time.monotonic() - 250.0
    assert not unrecorded.link._is_usual(steps)


def test_every_collective_bypasses_recording() -> None:
    """Of the methods that give a work or, like `monitored_barrier`, await one."""
    begin = {
        name
        for name, own in vars(ScriptGroup).items()
        if not name.startswith("_end") and getattr(own, "__annotations__", {}).get("return") == "dist.Work"
    }
    assert begin - {"issue", "_own", "_issue", "_gather_flat"} <= {*BEGINNING}
    assert "monitored_barrier" in BEGINNING
