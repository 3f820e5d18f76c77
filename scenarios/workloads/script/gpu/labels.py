"""What a kernel of a script is for: a module, forward or backward, an optimizer's step, or a line of the user's."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from scenarios.workloads.script.process.process_group import users_line

# Segments of a module's name that wrappers of torch's and TorchRec's add.
_WRAPPERS = frozenset(
    {"module", "_orig_mod", "_dmp_wrapped_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
# Of autograd's nodes whose modules are known, those of the last steps.
_MOST_PLACES = 1 << 17


class _Here(threading.local):
    """What a thread runs, and the numbers of its nodes."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.firsts: list[int] = []  # numbers, rising,
        self.places: list[str] = []  # and from each on whose they are


class Labels:
    """From now on follows which module runs, and in backward passes which one's gradients are computed.

    autograd numbers its nodes as a forward pass makes them; so a node belongs to the module during whose forward pass
    its number came up.
    """

    def __init__(self) -> None:
        self._here = _Here()
        self._names = WeakKeyDictionary[nn.Module, str]()
        register_module_forward_pre_hook(self._begin)
        register_module_forward_hook(self._end, always_call=True)
        register_optimizer_step_pre_hook(lambda optimizer, *_: self._enter(f"{type(optimizer).__name__}.step"))
        register_optimizer_step_post_hook(lambda *_: self._leave())

    def now(self) -> str:
        """Of what is launched now."""
        if self._here.running:
            return self._here.running[-1]
        node = torch._C._current_autograd_node()
        if node is None:
            return users_line(sys._getframe(1)) or "script"
        place = bisect_right(self._here.firsts, node._sequence_nr()) - 1
        name = self._here.places[place] if place >= 0 else ""
        return f"{name}.backward" if name else "backward"

    def _begin(self, module: nn.Module, _: Any) -> None:
        if not self._here.running:
            for name, part in module.named_modules():
                if part not in self._names:
                    self._names[part] = _without_wrappers(name) or type(part).__name__
        self._enter(self._names.get(module) or type(module).__name__)
        self._mark()

    def _end(self, *_: Any) -> None:
        self._leave()
        self._mark()

    def _enter(self, name: str) -> None:
        self._here.running.append(name)

    def _leave(self) -> None:
        if self._here.running:
            self._here.running.pop()

    def _mark(self) -> None:
        self._here.firsts.append(torch._C._autograd._get_sequence_nr())
        self._here.places.append(self._here.running[-1] if self._here.running else "")
        if len(self._here.firsts) > _MOST_PLACES:
            del self._here.firsts[: _MOST_PLACES // 2], self._here.places[: _MOST_PLACES // 2]


def _without_wrappers(name: str) -> str:
    return ".".join(each for each in name.split(".") if each not in _WRAPPERS)
