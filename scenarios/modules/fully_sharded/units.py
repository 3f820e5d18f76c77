"""The units of a fully sharded module, and the marks where its passes enter and leave them.

A unit is a submodule whose parameters are gathered together, like a submodule that torch's `fully_shard` is called
with. Marks follow torch 2.13: before and after its forward, before the first gradient of its outputs is used, and after
the gradients of its inputs are computed; if no input has a gradient, at the end of the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.hooks import RemovableHandle

from scenarios.modules.late_arguments import Needs
from scenarios.modules.recorder import Recorder

Phase = Literal["pre_forward", "post_forward", "pre_backward", "post_backward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A submodule; `parameters` are indices among the module's, in the order in which they are concatenated.

    `name` is the submodule's path, "" for the module itself; `reshards`: whether they are sharded after its forward.
    """

    name: str
    parameters: tuple[int, ...]
    reshards: bool

    @property
    def label(self) -> str:
        """Name of the unit in labels."""
        return self.name or "root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of a pass at a unit, after `after` operators.

    `seen` counts earlier events: uses of late tensors in a forward pass, gradients in a backward pass. `number` is the
    mark's position among the marks of its pass.
    """

    after: int
    seen: int
    phase: Phase
    unit: int
    number: int


def units_of(module: object, names: Sequence[str] | None = None, reshard: bool | None = None) -> tuple[Unit, ...]:
    """Return the units of a module, outer ones first; without those that have no parameters.

    Args:
        module: one without parameters has no units.
        names: submodules; by default children that have parameters, or the members of a ModuleList. The module itself
            is always one.
        reshard: whether parameters are sharded after the forward pass; None: all but those of the module itself.

    Raises:
        ValueError: the names or parameters are invalid; the message says what was expected.
    """
    if not isinstance(module, nn.Module):
        return ()
    chosen = set(_children(module) if names is None else names)
    modules = dict(module.named_modules())
    for name in chosen:
        if name not in modules or not _has_forward(modules[name]):
            raise ValueError(f"submodules that are called, but {name!r} is none")
    index_of = {id(each): index for index, each in enumerate(module.parameters())}
    inner = {id(modules[name]) for name in chosen} | {id(module)}
    units, unit_of = [], dict[int, str]()
    for name, each in modules.items():
        if id(each) not in inner:
            continue
        parameters = list(dict.fromkeys(_own_parameters(each, inner, set())))
        for parameter in parameters:
            _check(parameter, name, unit_of)
        if len({parameter.dtype for parameter in parameters}) > 1:
            raise ValueError(f"parameters of one dtype in each unit, but {name or 'the root'!r} has several")
        own = tuple(index_of[id(parameter)] for parameter in parameters)
        units.append(Unit(name=name, parameters=own, reshards=bool(name) if reshard is None else reshard))
    return tuple(unit for unit in units if unit.parameters)


def _children(module: nn.Module, prefix: str = "") -> Iterator[str]:
    for name, child in module.named_children():
        if not _has_forward(child):
            yield from _children(child, f"{prefix}{name}.")
        elif next(child.parameters(), None) is not None:
            yield prefix + name


def _has_forward(module: nn.Module) -> bool:
    return not isinstance(module, (nn.ModuleList, nn.ModuleDict))


def _own_parameters(module: nn.Module, inner: set[int], seen: set[int]) -> Iterator[nn.Parameter]:
    """Yield the parameters of a unit that belong to no unit inside it, those of its submodules first."""
    seen.add(id(module))
    for child in module.children():
        if id(child) not in inner and id(child) not in seen:
            yield from _own_parameters(child, inner, seen)
    yield from module.parameters(recurse=False)


def _check(parameter: nn.Parameter, unit: str, unit_of: dict[int, str]) -> None:
    if not parameter.requires_grad:
        raise ValueError(f"parameters that all require gradients, but {unit or 'the root'!r} has one that does not")
    if not parameter.shape:
        raise ValueError(f"parameters with at least one dimension, but {unit or 'the root'!r} has a single number")
    other = unit_of.setdefault(id(parameter), unit)
    if other != unit:
        raise ValueError(f"each parameter in one unit, but {other or 'the root'!r} and {unit!r} share one")


class UnitHooks:
    """Hooks that call `reach` when a module's passes reach its units, for one forward and backward pass.

    `is_coming` returns whether a tensor has no values yet: nothing may be derived from such a tensor.
    """

    def __init__(
        self,
        module: nn.Module,
        units: Sequence[Unit],
        reached: Callable[[Phase, int], object],
        is_coming: Callable[[Tensor], bool],
    ) -> None:
        self.reached, self._is_coming = reached, is_coming
        self._phases: list[Phase | None] = [None] * len(units)
        self._handles: list[RemovableHandle] = []
        self._modules = [module.get_submodule(unit.name) for unit in units]

    def __enter__(self) -> UnitHooks:
        for number, each in enumerate(self._modules):
            self._handles += [
                each.register_forward_pre_hook(partial(self._enters, number), prepend=True, with_kwargs=True),
                each.register_forward_hook(partial(self._leaves, number)),
            ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def finish(self) -> None:
        """End the backward pass, also in units without an input that has a gradient."""
        for unit, phase in enumerate(self._phases):
            if phase != "post_backward":
                self._reach("post_backward", unit)

    def _reach(self, phase: Phase, unit: int) -> None:
        self._phases[unit] = phase
        self.reached(phase, unit)

    def _enters(self, unit: int, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._phases[unit] == "pre_backward":  # recomputation by checkpointing
            return None
        self._reach("pre_forward", unit)
        leaves, layout = _flatten((args, kwargs))
        places = [
            place
            for place, leaf in enumerate(leaves)
            if isinstance(leaf, Tensor) and leaf.requires_grad and torch.is_grad_enabled()
        ]
        coming = [place for place in places if self._is_coming(leaves[place])]
        there = [place for place in places if place not in coming]
        ends = _Countdown(bool(coming) + bool(there), partial(self._reach, "post_backward", unit))
        if coming:
            # Late tensors get their values after this point: a tensor derived from them now would miss those.
            torch.autograd.graph.register_multi_grad_hook([leaves[place] for place in coming], ends)
        if there:
            # As fully_shard does: the identity's backward runs once all gradients of its tensors are computed.
            passed = _Passed.apply(ends, *(leaves[place] for place in there))  # type: ignore[no-untyped-call]
            for place, tensor in zip(there, passed, strict=True):
                leaves[place] = tensor
        return tree_unflatten(leaves, layout)

    def _leaves(self, unit: int, _: nn.Module, args: object, output: Any) -> None:
        if self._phases[unit] == "pre_backward":
            return
        self._reach("post_forward", unit)
        for leaf in _flatten(output)[0]:
            if isinstance(leaf, Tensor) and leaf.requires_grad and torch.is_grad_enabled():
                # The first output whose gradient arrives starts the unit's backward; `_turns` ignores the others.
                leaf.register_hook(partial(self._turns, unit))

    def _turns(self, unit: int, _: Tensor) -> None:
        if self._phases[unit] != "pre_backward":
            self._reach("pre_backward", unit)


class UnitMarks:
    """A log of where both passes are at units; it drops a unit's gradients once its backward is over."""

    def __init__(
        self, recorder: Recorder, parameters: Sequence[Tensor], units: Sequence[Unit], needs: Sequence[object]
    ) -> None:
        self.hooks: UnitHooks | None = None
        self.forward: list[Mark] = []
        self.backward: list[Mark] = []
        self._recorder, self._parameters, self._units = recorder, parameters, units
        self._marks, self._begun = self.forward, 0
        self._seen = needs

    def watching(self, module: Any, watched: Needs) -> AbstractContextManager[object]:
        """Return a context that records where the module's forward pass is at units; without units it does nothing."""
        if self._units:
            self.hooks = UnitHooks(module, self._units, self.reach, watched.is_left)
        return self.hooks or nullcontext()

    def reach(self, phase: Phase, unit: int) -> None:
        after = len(self._recorder.operators) - self._begun
        mark = Mark(after=after, seen=len(self._seen), phase=phase, unit=unit, number=len(self._marks))
        self._marks.append(mark)
        for index in self._units[unit].parameters if phase == "post_backward" else ():
            # As fully_shard does, so that memory of whole gradients is freed unit by unit.
            self._parameters[index].grad = None

    def turn(self, ready: Sequence[object]) -> None:
        """Record marks of the backward pass from now on, whose gradients that become ready are added to `ready`."""
        self._marks, self._seen, self._begun = self.backward, ready, len(self._recorder.operators)

    def finish(self) -> None:
        if self.hooks is not None:
            self.hooks.finish()


class _Countdown:
    """A callable that calls a function at its `count`-th call."""

    def __init__(self, count: int, function: Callable[[], object]) -> None:
        self._left, self._function = count, function

    def __call__(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            self._function()


class _Passed(torch.autograd.Function):
    """An identity function that calls `done` when the backward pass has computed all gradients of its tensors."""

    @staticmethod
    def forward(ctx: Any, done: Callable[[], object], *tensors: Tensor) -> Any:
        ctx.done = done
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.done()
        return (None, *gradients)


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    """Flatten dicts, lists and tuples only: other containers are left alone, as in fully_shard."""
    return tree_flatten(tree, is_leaf=lambda node: not isinstance(node, (dict, list, tuple)))
