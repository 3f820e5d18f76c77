"""What a script's process does with a GPU, on a device in imagined time: few events, no waits, right rows."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from real.rank.cuda import Anchors, CudaLane
from real.rank.journal import STEP
from real.script import backend as script_backend
from real.script.link import Place, WatchedLink
from real.script.process_group import WatchedGroup
from tests.real.rank.fake_cuda import NAME, Device, Event, NcclWork, Stream, installed

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
    return installed(monkeypatch, Device())


class Script:
    """A script of one rank: its link, its group, and how often it used the device."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device, self.told, self.used = device, Told(), Counter[str]()
        library = Library(device)
        monkeypatch.setattr(WatchedGroup, "_make", lambda *_: dist.ProcessGroup(0, 1))
        monkeypatch.setattr(script_backend, "Nccl", lambda _: SimpleNamespace(new_lane=self._lane))
        self.link = WatchedLink(self.told, Place(0, 0, 1, 1), 100)  # type: ignore[arg-type]
        self.link.begin()
        options = SimpleNamespace(global_ranks_in_group=[], group_size=1, group_rank=0, store=dist.HashStore())
        monkeypatch.setattr(WatchedGroup, "__init__", _without_groups_of_torchs)
        self.group = self.link.join(options, {"cuda": "nccl"})
        self.group._inner = library
        for kind, name in ((Event, "record"), (Stream, "synchronize"), (Device, "synchronize"), (Event, "query")):
            monkeypatch.setattr(kind, name, self._counted(name, getattr(kind, name)))

    def _lane(self, *, is_main: bool) -> Any:
        return CudaLane(NAME, Anchors(NAME), is_main=is_main)

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            self.used[name] += 1
            return function(*given)

        return counted

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
    script.link.ask("record", ("loss", torch.tensor(0.5)))
    script.link.ask("step")


def test_a_step_takes_one_event_a_call_two_or_three_and_the_host_waits_for_none(script: Script) -> None:
    """Whatever modules there are; an asynchronous call has one more, where its end is followed."""
    script.link.ask("step")
    for modules in (0, 0, 30):
        script.used.clear()
        a_step(script, modules)
        assert script.used["record"] <= 1 + 2 + 3 + 2  # the fake library's own two are among them
        assert script.used["synchronize"] == 0
        assert script.used["query"] <= 2  # of what the library may let go of


def test_rows_are_made_apart_from_the_steps(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second, between the end of a step and the beginning of the next."""
    script.link.ask("step")
    script.told.said.clear()
    for _ in range(5):
        a_step(script)
    assert not [kind for kind, _ in script.told.said if kind == "rows"]
    monkeypatch.setattr("real.script.link.SPOOLED_EVERY_S", 0.0)
    a_step(script)
    assert [kind for kind, _ in script.told.said if kind == "rows"]


def test_rows_say_when_the_device_did_what(script: Script) -> None:
    script.link.ask("step")
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


def test_what_a_script_that_hangs_has_finished_is_handed_over(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread that is asked where the script stands."""
    script.link.ask("step")
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
