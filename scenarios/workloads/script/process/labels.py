"""Labels of a script's work: a module (forward or backward), an optimizer's step, or a line of the user's."""

from __future__ import annotations

import sys
import threading
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from scenarios.seam.roles import GRADIENTS, IDS, OPTIMIZER, ROWS
from scenarios.workloads.recording.events.work import Label
from scenarios.workloads.script.script_streams import KIND
from scenarios.workloads.script.users_lines import users_line

# Segments that wrappers of torch and TorchRec add to a module's name.
_WRAPPERS = frozenset(
    {"module", "_orig_mod", "_dmp_wrapped_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
)
# Packages of modules whose parts lie on several ranks: their Python is not compiled.
_SHARDED = ("torchrec.distributed", "fbgemm_gpu")
# Roles of TorchRec's exchanges, by the name of a class from which their modules derive; and of gradients.
_ROLES = {"BaseSparseFeaturesDist": IDS, "BaseEmbeddingDist": ROWS}
_BACKWARD = {ROWS: GRADIENTS}
# How many boundaries between modules are kept, of the latest steps.
_MOST_PLACES = 1 << 17
# The metadata key of nodes that report when a backward pass reaches them.
_WATCHED = "twinstep"


class _ThreadLabels(threading.local):
    """The modules that a thread is running, and the numbers of its autograd nodes."""

    def __init__(self) -> None:
        self.running: list[Label] = []
        self.firsts: list[int] = []  # sequence numbers, ascending,
        self.places: list[Label | None] = []  # and the module to which nodes belong from each number on
        self.is_backward = False


class Labels:
    """A tracker of which module runs, and in backward passes whose gradients are computed.

    autograd numbers its nodes in the order of the forward pass, so a node belongs to the module whose forward pass was
    running when its number was assigned. `turn`, if given, is called with each new label; in backward passes only at
    the nodes that made a module's inputs and outputs, as other nodes are not visible.
    """

    def __init__(self, turn: Callable[[Label], None] | None = None) -> None:
        self._here, self._turn = _ThreadLabels(), turn
        self._names = WeakKeyDictionary[nn.Module, str]()
        self._eager = set[str]()  # labels of work that is not compiled
        # The warning says that hooks run twice for compiled modules: `_end` pops no more than `_begin` has pushed.
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        self._hooks = (
            register_module_forward_pre_hook(self._begin),
            register_module_forward_hook(self._end, always_call=True),
            register_optimizer_step_pre_hook(self._begin_optimizer),
            register_optimizer_step_post_hook(lambda *_: self._leave()),
        )

    def end(self) -> None:
        """Stop tracking; nodes of graphs that still exist report nothing more."""
        self._turn = None
        for hook in self._hooks:
            hook.remove()

    def now(self) -> Label:
        """Return the label of the work that is launched now."""
        return self._part() or Label(users_line(sys._getframe().f_back) or KIND)

    @property
    def is_compilable(self) -> bool:
        """Whether torch.compile would compile the current work: modules' own operators, forward or backward.

        Modules are excluded if TorchRec has sharded them, any of their parts, or any module around them.
        """
        if self._here.running:
            return self._here.running[-1].text not in self._eager
        node = torch._C._current_autograd_node()
        label = None if node is None else self._forward(node)
        return label is not None and label.text not in self._eager

    def _part(self) -> Label | None:
        """Return the label of the module or optimizer that runs; None outside of both."""
        if self._here.running:
            return self._here.running[-1]
        node = torch._C._current_autograd_node()
        return None if node is None else self._backward(node)

    def _backward(self, node: Any) -> Label:
        """Return the label of an autograd node."""
        label = self._forward(node)
        if label is None:
            return Label("backward")
        return Label(f"{label.text}.backward", _BACKWARD.get(label.role, label.role))

    def _forward(self, node: Any) -> Label | None:
        """Return the label of the module whose forward pass was running when a node got its number; None if none."""
        place = bisect_right(self._here.firsts, node._sequence_nr()) - 1
        return self._here.places[place] if place >= 0 else None

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        if torch.compiler.is_compiling():  # compiled code belongs to the module that was called
            return
        if not self._here.running and module not in self._names:
            self._name(module)
        self._watch(inputs)
        outer = self._here.running[-1].role if self._here.running else ""
        self._enter(Label(self._names.get(module) or type(module).__name__, _role(module) or outer))
        self._mark()

    def _name(self, module: nn.Module) -> None:
        """Name a module and its parts, and note which of them TorchRec has sharded."""
        named = dict(module.named_modules())
        sharded = [name for name, part in named.items() if type(part).__module__.startswith(_SHARDED)]
        for name, part in named.items():
            if part not in self._names:
                without_wrappers = ".".join(each for each in name.split(".") if each not in _WRAPPERS)
                self._names[part] = without_wrappers or type(part).__name__
            if any(not name or f"{one}.".startswith(f"{name}.") or name.startswith(f"{one}.") for one in sharded):
                self._eager.add(self._names[part])

    def _begin_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        label = Label(f"{type(optimizer).__name__}.step", OPTIMIZER)
        self._eager.add(label.text)
        self._enter(label)

    def _end(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._watch(outputs)
        self._leave()
        self._mark()

    def _enter(self, label: Label) -> None:
        self._here.running.append(label)
        self._tell(label)

    def _leave(self) -> None:
        if self._here.running:
            self._here.running.pop()
        self._tell(self._part())

    def _tell(self, label: Label | None) -> None:
        if self._turn is not None:
            self._turn(label or Label(KIND))

    def _mark(self) -> None:
        # The next node's number; nodes made from now on belong to what runs now.
        self._here.firsts.append(torch._C._autograd._get_sequence_nr())
        self._here.places.append(self._here.running[-1] if self._here.running else None)
        if len(self._here.firsts) > _MOST_PLACES:
            del self._here.firsts[: _MOST_PLACES // 2], self._here.places[: _MOST_PLACES // 2]

    def _watch(self, values: Any) -> None:
        """Make the nodes that made these tensors report when a backward pass reaches them."""
        if self._turn is None or not torch.is_grad_enabled():
            return
        for tensor in _tensors(values):
            node: Any = tensor.grad_fn
            if node is not None and _WATCHED not in node.metadata:
                node.metadata[_WATCHED] = True
                node.register_prehook(partial(self._reach, self._backward(node)))

    def _reach(self, label: Label, _: Any) -> None:
        if not self._here.is_backward:
            self._here.is_backward = True
            # autograd runs it at the end of this backward pass; it refuses callbacks outside of one.
            Variable._execution_engine.queue_callback(self._is_over)
        self._tell(label)

    def _is_over(self) -> None:
        self._here.is_backward = False
        self._tell(self._part())


def _role(module: nn.Module) -> str:
    """Return the role that follows from a module's class; "" for none."""
    return next((_ROLES[each.__name__] for each in type(module).__mro__ if each.__name__ in _ROLES), "")


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors in a module's inputs or outputs."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from _tensors(each)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))
