"""Marks the steps of a script and counts what it calls until it ends, in its process in both worlds."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from scenarios.workloads.script.config import CALLS, Marking
from scenarios.workloads.script.events.notes import FoundPlan, ScriptEnd, ScriptFailure, StepEnd
from scenarios.workloads.script.process.process_group import ScriptGroup, TorchCall
from scenarios.workloads.script.process.torchrec_plan import LookUps, plan_found
from scenarios.workloads.script.requests import ScriptLink

# Functions of torch.distributed, by what torch's process groups call them.
_NAMES = {name.replace("_", ""): name for name in CALLS}
# Backward passes without a step: a script that trains for hours is not let run to its end to be refused then.
_MOST_UNMARKED = 1000
_MARKED = "expected --step-every backward, or twinstep.step() at the end of each step, where no optimizer steps"
# Who marks steps where nobody has said who: the script itself by `twinstep.step()`, or its first optimizer.
_ITSELF, _OPTIMIZER, _BACKWARD, _FORWARD = "twinstep.step()", "optimizer", "backward", "forward"
_ONCE = "once"
_here: list[Marks] = []


def step() -> None:
    """Mark the end of a step; see `twinstep.step`. Do nothing in a process that runs no script."""
    if _here:
        _here[0].itself()


class Replaced:
    """A function of torch's that has one of ours in its place until `end`."""

    def __init__(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        self._owner, self._name, self._own, self._ours = owner, name, getattr(owner, name), ours
        setattr(owner, name, ours)

    def end(self) -> None:
        """Put torch's back, unless someone else has replaced ours since."""
        if getattr(self._owner, self._name) is self._ours:
            setattr(self._owner, self._name, self._own)


class Marks:
    """The marks of one process.

    Each tells the link of a `StepEnd`. `every` is as `Marking` reads it; with "" a script that imports twinstep marks
    its steps itself, and the first optimizer those of others. `before` is called where a mark comes, ahead of the link,
    with whether an optimizer makes it. `losses` is torch's `Tensor.backward`. Where the link answers with a function,
    only marks are wanted from then on: each calls it, and torch's own functions of backward passes are put back.

    Attributes:
        optimizers, calls: how often each optimizer stepped and each function of torch.distributed was called, by name.
        backward: how many backward passes there were.
    """

    def __init__(
        self, link: ScriptLink, every: str, losses: Replaced, before: Callable[[bool], None] = lambda _: None
    ) -> None:
        sys.modules.pop("twinstep", None)  # a command's: only a script's own import counts
        self._link, self._before, self._pid = link, before, os.getpid()
        self._marking = Marking.of(every) if every else None
        self._counted = 0  # of what marks, since the last mark
        self._first: weakref.ref[Any] | None = None  # optimizer; a deleted one is followed by the next that steps
        self._others: dict[int, str] = {}  # names of optimizers
        self._stepped_since: set[int] = set()  # those of them, since the first one's step
        self._has_said = False
        self._by = ""  # who has marked steps
        self._is_marked = False
        self._end_step: Callable[[], bool] | None = None  # where only marks are wanted
        self._is_each = False  # whether each step of the first optimizer marks one then
        self.optimizers, self.calls, self.backward = Counter[str](), Counter[str](), 0
        is_planned = os.environ["RANK"] == "0"  # all ranks have the same plan
        self._look_ups = LookUps(getattr(link, "shadows", None)) if is_planned else None
        register_optimizer_step_post_hook(self._stepped)
        self._losses, self._backwards = losses, self._watch_backward()
        if self._marking is not None and self._marking.word == _FORWARD:  # torch.compile looks at hooks of all modules
            self._watch_forward()
        if self._marking is not None and self._marking.word == _ONCE:
            self._watch_begin()
        ScriptGroup.called = staticmethod(self._called)
        _here[:] = [self]

    def seen(self) -> dict[str, Any]:
        """Return what was seen, as a line of a recording can hold it."""
        return {"optimizers": dict(self.optimizers), "backward": self.backward, "calls": dict(self.calls)}

    def itself(self) -> None:
        """Mark a step where the script says so.

        Raises:
            RuntimeError: its optimizer has marked others before.
        """
        if self._marking is not None:
            return
        if self._by == _OPTIMIZER:
            raise RuntimeError(
                "twinstep.step(): an optimizer has marked steps before: expected `import twinstep` ahead of the first"
                " one's step"
            )
        self._by = _ITSELF
        self._mark()

    def _mark(self) -> None:
        if os.getpid() != self._pid:
            return  # a data loader's worker, say
        self._is_marked = True
        if self._end_step is not None:
            if self._end_step():
                self._link.ask(ScriptEnd())
            return
        self._tell_plan()
        word = self._by if self._marking is None else self._marking.word
        self._before(word == _OPTIMIZER)
        self._end_step = self._link.ask(StepEnd())
        if self._end_step is not None:
            self._only_mark(word)

    def _only_mark(self, word: str) -> None:
        """Follow nothing from now on but what marks steps, and that as briefly as possible: it is in their time."""
        self._losses.end()
        if word != _BACKWARD:
            self._backwards.end()
        self._is_each = word == _OPTIMIZER and (self._marking is None or self._marking.period == 1)

    def _count(self, words: set[str]) -> None:
        """Mark a step if one of these words does, this time."""
        if self._marking is not None and self._marking.word in words:
            self._counted += 1
            if self._counted == self._marking.period:
                self._counted = 0
                self._mark()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._is_each and self._first is not None and optimizer is self._first():
            self._mark()
            return
        self.optimizers[type(optimizer).__name__] += 1
        if self._first is None or self._first() is None:
            self._first = weakref.ref(optimizer)
            self._tell_plan()
        if optimizer is not self._first():
            self._others[id(optimizer)] = type(optimizer).__name__
            self._stepped_since.add(id(optimizer))
        elif self._marking is not None:
            self._count({_OPTIMIZER, _ONCE})
        elif "twinstep" not in sys.modules:
            self._by = _OPTIMIZER
            self._say_who_skips(type(optimizer).__name__)
            self._mark()

    def _say_who_skips(self, first: str) -> None:
        """Say once that another optimizer does not step in each step, which then are not alike."""
        skips = [name for number, name in self._others.items() if number not in self._stepped_since]
        self._stepped_since.clear()
        if skips and not self._has_said and os.environ["RANK"] == "0":
            self._has_said = True
            print(
                f"note: a step lies between two steps of the first optimizer, {first}, and {skips[0]} does not step in"
                " each: --step-every optimizer:N takes N of them for a step, or the script calls twinstep.step()",
                file=sys.stderr,
                flush=True,
            )

    def _tell_plan(self) -> None:
        """Tell the plan of tables, once: at the first step of all."""
        if self._look_ups is None:
            return
        look_ups, self._look_ups = self._look_ups, None
        look_ups.end()
        if (found := plan_found(look_ups)) is not None:
            self._link.ask(FoundPlan(found))

    def _called(self, asked: TorchCall) -> None:
        """Count a call that is about to be made, by its verb and by its function of torch.distributed."""
        name = _NAMES.get(asked.native[0].replace("_", ""), asked.verb)
        self.calls[name] += 1
        self._count({asked.verb, name})

    def _watch_begin(self) -> None:
        """End setting up where the first call of a module begins, in a script that makes one step."""

        def begin(*_: Any) -> None:
            handle.remove()
            self._mark()

        handle = register_module_forward_pre_hook(begin)

    def _watch_forward(self) -> None:
        """Count calls of modules on this thread that are in no other module's and in no backward pass."""
        thread, depth = threading.get_ident(), 0

        def is_followed() -> bool:  # what is compiled is in the module that was called
            return not torch.compiler.is_compiling() and threading.get_ident() == thread

        def begin(*_: Any) -> None:
            nonlocal depth
            depth += is_followed()

        def end(*_: Any) -> None:
            nonlocal depth
            if is_followed():
                depth -= 1
                if not depth and torch._C._current_autograd_node() is None:  # not a checkpoint that runs anew
                    self._count({_FORWARD})

        register_module_forward_pre_hook(begin)
        register_module_forward_hook(end, always_call=True)

    def _watch_backward(self) -> Replaced:
        backward = torch.autograd.backward

        def counted(*args: Any, **more: Any) -> None:
            is_outermost = torch._C._current_autograd_node() is None
            backward(*args, **more)
            if is_outermost:
                self.backward += 1
                self._count({_BACKWARD})
                if self.backward == _MOST_UNMARKED and not self._is_marked and os.getpid() == self._pid:
                    self._link.ask(ScriptFailure(f"no step was seen in {_MOST_UNMARKED:,} backward passes: {_MARKED}"))

        return Replaced(torch.autograd, "backward", counted)
