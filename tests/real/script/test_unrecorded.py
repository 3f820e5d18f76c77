"""Steps that are timed with the recording off: how many, where each begins and ends, and that nothing else is noted."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer

from real.rank import lanes
from real.rank.journal import Journal
from real.script import unrecorded
from real.script.link import RankPlace, WatchedLink, _unrecorded_steps
from real.script.unrecorded import SETTLING, UnrecordedSteps
from scenarios.config.load import load
from scenarios.seam.errors import ScenarioError
from scenarios.workloads.recording.events.event import Request
from scenarios.workloads.recording.events.notes import ScriptEnd, StepEnd
from scenarios.workloads.recording.events.work import Label
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.process.labels import Labels
from scenarios.workloads.script.process.marks import Marks, Replaced
from scenarios.workloads.script.process.process_group import ScriptGroup


class Ticking(lanes.StreamLane):
    """A lane whose marks are 10 ns apart, and later than any step is issued."""

    def __init__(self) -> None:
        self.mark = itertools.count(2 * lanes.now_ns(), 10).__next__  # type: ignore[method-assign]


def test_the_first_steps_settle_and_each_later_one_lies_between_two_marks() -> None:
    journal = Journal(0, 0, 1)
    steps = UnrecordedSteps(journal, Ticking(), "main", 7, 3)
    assert [steps.end_step() for _ in range(SETTLING + 3)] == [False] * (SETTLING + 2) + [True]
    assert steps.timed_steps == 3
    steps.note()
    spans, metrics = journal.take()
    assert [(row[5], row[6], row[3]) for row in spans] == [("step", f"step {number}", -1) for number in (9, 10, 11)]
    assert [row[11] - row[10] for row in spans] == [10] * 3
    assert not metrics


def test_clock_readings_lie_outside_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded, "SPOOLED_EVERY_S", 0.0)
    journal, lane, looks = Journal(0, 0, 1), lanes.StreamLane(), list[int]()
    monkeypatch.setattr(lane, "between_steps", lambda: looks.append(lanes.now_ns()), raising=False)
    steps = UnrecordedSteps(journal, lane, "main", 0, 4)
    while not steps.end_step():
        pass
    steps.note()
    spans, _ = journal.take()
    assert len(spans) == 4
    assert len(looks) == SETTLING + 4
    assert not any(row[10] < look < row[11] for row in spans for look in looks)


def test_a_thread_that_hands_over_rows_leaves_the_steps_to_the_one_that_ends_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last recorded step may end just when the thread has begun to hand over."""
    sent = list[tuple[str, Any]]()
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    link = WatchedLink(SimpleNamespace(send=sent.append), RankPlace(0, 0, 1, 1), 7)  # type: ignore[arg-type]
    link._unrecorded = steps = UnrecordedSteps(link._journal, Ticking(), "main", 7, 3)
    while not steps.end_step():
        pass
    link._hand_over()
    assert sent == [("rows", ([], []))]
    monkeypatch.setattr(threading, "Event", lambda: SimpleNamespace(wait=lambda: None))  # for which it stays
    link._leave("end", None)
    ((_, (spans, _)),) = [each for each in sent[1:] if each[0] == "rows"]
    assert [row[6] for row in spans] == ["step 9", "step 10", "step 11"]


@pytest.mark.parametrize(
    ("given", "step_every", "is_on_gpu", "count"),
    [
        (None, "", True, 20),
        (None, "", False, 0),
        (None, "backward:2", True, 20),
        (None, "all_reduce:4", True, 0),  # calls are counted
        (5, "", False, 5),
        (0, "", True, 0),
    ],
)
def test_number_of_unrecorded_steps(given: int | None, step_every: str, is_on_gpu: bool, count: int) -> None:
    script = Script(path=Path("train.py"), sha256="", unrecorded_steps=given, step_every=step_every)
    assert _unrecorded_steps(script, 20, is_on_gpu=is_on_gpu) == count


def test_steps_that_calls_mark_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    file = tmp_path / "marked.toml"
    file.write_text(
        "program = 'script'\n[cluster]\nprofile = 'emulated_200mbit'\nhosts = 2\n"
        "[script]\npath = 'train.py'\nstep_every = 'all_reduce'\nunrecorded_steps = 3\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert list(caught.value.sentences) == [
        f"{file}: script.unrecorded_steps = 3: expected 0 with step_every = 'all_reduce', as steps are then counted by"
        " their calls"
    ]


class Ended:
    """A link that wants nothing but the ends of steps behind the first one."""

    def __init__(self) -> None:
        self.ended, self.asked = 0, list[Request]()

    def ask(self, request: Request) -> Callable[[], bool]:
        self.asked.append(request)
        return self.end_step

    def end_step(self) -> bool:
        self.ended += 1
        return self.ended == 3


@pytest.mark.parametrize(("every", "passes"), [("", 4), ("optimizer:2", 8), ("backward", 4), ("backward:3", 12)])
def test_steps_end_as_they_are_marked_and_torchs_own_functions_are_back(
    every: str, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = torch.Tensor.backward, torch.autograd.backward
    for owner, name in ((torch.Tensor, "backward"), (torch.autograd, "backward"), (ScriptGroup, "called")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(optimizer, "_global_optimizer_post_hooks", OrderedDict())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delitem(sys.modules, "twinstep", raising=False)
    link, layer = Ended(), nn.Linear(2, 2)

    def note(loss: torch.Tensor) -> None:
        own[0](loss)  # type: ignore[no-untyped-call]

    Marks(link, every, Replaced(torch.Tensor, "backward", note))  # type: ignore[arg-type]
    assert torch.Tensor.backward is not own[0]
    first, second = (torch.optim.SGD(layer.parameters(), lr=0.1) for _ in range(2))
    for _ in range(passes):
        assert link.asked.count(ScriptEnd()) == 0
        layer(torch.ones(1, 2)).sum().backward()
        first.step()
        second.step()
    assert link.asked == [StepEnd(), ScriptEnd()]
    assert link.ended == 3
    assert torch.Tensor.backward is own[0]
    assert (torch.autograd.backward is own[1]) == (not every.startswith("backward"))


def test_a_function_that_others_have_replaced_since_stays_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    replaced, theirs = Replaced(torch.autograd, "backward", lambda *_: None), lambda *_: None
    torch.autograd.backward = theirs
    replaced.end()
    assert torch.autograd.backward is theirs


def test_labels_follow_no_module_any_more() -> None:
    hooks = nn.modules.module
    before = len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)
    told: list[Label] = []
    labels, layer = Labels(told.append), nn.Linear(2, 2)
    output = layer(torch.ones(1, 2, requires_grad=True))
    assert told
    labels.end()
    told.clear()
    layer(torch.ones(1, 2))
    output.sum().backward()  # whose nodes were watched
    assert not told
    assert (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)) == before
