"""Marks the steps of a script and counts its calls until it ends; runs in simulated and real ranks' processes."""

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

from scenarios.seam.traits import TRAITS
from scenarios.workloads.recording.events.notes import FoundPlan, ScriptEnd, ScriptFailure, StepEnd
from scenarios.workloads.script.config import Marking
from scenarios.workloads.script.host.calls import passes_through
from scenarios.workloads.script.process.process_group import ScriptGroup, TorchCall
from scenarios.workloads.script.process.torchrec_plan import LookUps, plan_found
from scenarios.workloads.script.requests import ScriptLink

# Functions of torch.distributed, by the names of torch's process group methods.
_NAMES = {name.replace("_", ""): name for name in TRAITS}
# Backward passes without a step before a script is refused, rather than after hours of training.
_MOST_UNMARKED = 1000
_MARKED = "expected --step-every backward, or twinstep.step() at the end of each step, where no optimizer steps"
# What marks steps; without --step-every the script itself, by `twinstep.step()`, or its first optimizer.
_ITSELF, _OPTIMIZER, _BACKWARD, _FORWARD = "twinstep.step()", "optimizer", "backward", "forward"
_ONCE = "once"
_here: list[Marks] = []


def step() -> None:
    """Mark the end of a step; see `twinstep.step`. Do nothing in a process that runs no script."""
    if _here:
        _here[0].itself()


class Replaced:
    """A function of torch that is replaced by ours until `end`."""

    def __init__(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        self._owner, self._name, self._own, self._ours = owner, name, getattr(owner, name), ours
        setattr(owner, name, ours)

    def end(self) -> None:
        """Restore torch's function, unless other code has replaced ours since."""
        if getattr(self._owner, self._name) is self._ours:
            setattr(self._owner, self._name, self._own)


class Marks:
    """The marks of one process; each sends a `StepEnd` over the link.

    If the link answers with a function, only marks matter from then on: each mark calls the function, and torch's own
    functions of backward passes are restored.

    Args:
        link: the link to the rank.
        every: a rule as `Marking` reads it; "": a script that imports twinstep marks its steps itself, other scripts'
            steps are marked by the first optimizer.
        losses: the replacement of torch's `Tensor.backward`.
        before: called at each mark, before the link, with whether an optimizer makes the mark.

    Attributes:
        optimizers, calls: how often each optimizer stepped and each function of torch.distributed was called, by name.
        backward: how many backward passes there were.
    """

    def __init__(
        self, link: ScriptLink, every: str, losses: Replaced, before: Callable[[bool], None] = lambda _: None
    ) -> None:
        sys.modules.pop("twinstep", None)  # imported by the command; only the script's own import counts
        self._link, self._before, self._pid = link, before, os.getpid()
        self._marking = Marking.of(every) if every else Marking("", 1)
        self._counted = 0  # marking events since the last mark
        self._first: weakref.ref[Any] | None = None  # optimizer; if deleted, the next one that steps takes its place
        self._others: dict[int, str] = {}  # names of other optimizers
        self._stepped_since: set[int] = set()  # other optimizers that stepped since the first one did
        self._has_said = False
        self._by = ""  # what has marked steps so far
        self._is_marked = False
        self._end_step: Callable[[], bool] | None = None  # set once only marks matter
        self._is_each = False  # whether then each step of the first optimizer is a mark
        self.optimizers, self.calls, self.backward = Counter[str](), Counter[str](), 0
        is_planned = os.environ["RANK"] == "0"  # all ranks have the same plan
        self._look_ups = LookUps(getattr(link, "shadows", None)) if is_planned else None
        register_optimizer_step_post_hook(self._count_step)
        self._losses, self._backwards = losses, self._watch_backward()
        if self._marking.word == _FORWARD:  # only if needed: torch.compile reacts to global hooks
            self._watch_forward()
        if self._marking.word == _ONCE:
            self._watch_begin()
        ScriptGroup.called = staticmethod(self._count_call)
        _here[:] = [self]

    def as_counts(self) -> dict[str, Any]:
        """Return the counts, ready for a line of a recording."""
        return {"optimizers": dict(self.optimizers), "backward": self.backward, "calls": dict(self.calls)}

    def itself(self) -> None:
        """Mark a step on the script's call of `twinstep.step()`.

        Raises:
            RuntimeError: the script's optimizer has marked steps before.
        """
        if self._marking.word:
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
        word = self._marking.word or self._by
        self._before(word == _OPTIMIZER)
        self._end_step = self._link.ask(StepEnd())
        if self._end_step is not None:
            self._only_mark(word)

    def _only_mark(self, word: str) -> None:
        """Stop all tracking but of marks, which has to be quick: it is part of the steps' time."""
        self._losses.end()
        if word != _BACKWARD:
            self._backwards.end()
        self._is_each = word == _OPTIMIZER and self._marking.period == 1

    def _count(self, words: set[str]) -> None:
        """Count an event with these names, and mark a step if the rule's period is complete."""
        if self._marking.word in words:
            self._counted += 1
            if self._counted == self._marking.period:
                self._counted = 0
                self._mark()

    def _count_step(self, optimizer: Any, *_: Any) -> None:
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
        elif self._marking.word:
            self._count({_OPTIMIZER, _ONCE})
        elif "twinstep" not in sys.modules:
            self._by = _OPTIMIZER
            self._say_who_skips(type(optimizer).__name__)
            self._mark()

    def _say_who_skips(self, first: str) -> None:
        """Print, once, that another optimizer does not step in each step, so that steps differ."""
        skips = [name for number, name in self._others.items() if number not in self._stepped_since]
        self._stepped_since.clear()
        if skips and not self._has_said and os.environ["RANK"] == "0":
            self._has_said = True
            print(
                f"note: the first optimizer, {first}, marks the steps, and {skips[0]} does not step in each: use"
                " --step-every optimizer:N to count N of its steps as one, or call twinstep.step() in the script",
                file=sys.stderr,
                flush=True,
            )

    def _tell_plan(self) -> None:
        """Report the sharding plan, once, at the very first step."""
        if self._look_ups is None:
            return
        look_ups, self._look_ups = self._look_ups, None
        look_ups.end()
        if (found := plan_found(look_ups)) is not None:
            self._link.ask(FoundPlan(found))

    def _count_call(self, asked: TorchCall) -> None:
        """Count a call that is about to be made, under its verb and its function of torch.distributed."""
        name = _NAMES.get(asked.native[0].replace("_", ""), asked.verb)
        self.calls[name] += 1
        self._count({asked.verb, name})

    def _watch_begin(self) -> None:
        """Mark the end of set-up where the first call of a module begins, for a script of one step."""

        def begin(*_: Any) -> None:
            handle.remove()
            self._mark()

        handle = register_module_forward_pre_hook(begin)

    def _watch_forward(self) -> None:
        """Count this thread's outermost calls of modules, outside of backward passes."""
        thread, depth = threading.get_ident(), 0

        def is_followed() -> bool:  # calls within compiled code belong to the module that was called
            return not torch.compiler.is_compiling() and threading.get_ident() == thread

        def begin(*_: Any) -> None:
            nonlocal depth
            depth += is_followed()

        def end(*_: Any) -> None:
            nonlocal depth
            if is_followed():
                depth -= 1
                if not depth and torch._C._current_autograd_node() is None:  # excludes recomputation of a checkpoint
                    self._count({_FORWARD})

        register_module_forward_pre_hook(begin)
        register_module_forward_hook(end, always_call=True)

    def _watch_backward(self) -> Replaced:
        backward = torch.autograd.backward

        @passes_through  # hooks of the script and its libraries run within
        def count(*args: Any, **more: Any) -> None:
            is_outermost = torch._C._current_autograd_node() is None
            backward(*args, **more)
            if is_outermost:
                self.backward += 1
                self._count({_BACKWARD})
                if self.backward == _MOST_UNMARKED and not self._is_marked and os.getpid() == self._pid:
                    self._link.ask(ScriptFailure(f"no step was seen in {_MOST_UNMARKED:,} backward passes: {_MARKED}"))

        return Replaced(torch.autograd, "backward", count)
