"""The actions of a fully sharded module at each mark of its passes: gathers, copies, reductions, and their order.

The order is that of torch 2.13's fully_shard. A unit's gather in the forward pass is issued as soon as the previous one
is over, as by hosts that run ahead of their GPUs ("implicit prefetching"). The previous unit is gathered in the
backward pass once a unit's parameters are whole. A reduction begins when the previous one is over.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scenarios.modules.fully_sharded.units import Mark, Unit

Kind = Literal["gather", "await", "copy_out", "free", "await_reduction", "reduce"]


@dataclass(frozen=True, slots=True)
class Action:
    """An action for a unit; `parameters` are those whose gradients are reduced, by index."""

    kind: Kind
    unit: int
    parameters: tuple[int, ...] = ()


Actions = tuple[tuple[Action, ...], ...]  # by mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The actions at each mark of a forward and backward pass; `lost` are parameters whose gradients come too late."""

    forward: Actions
    backward: Actions
    lost: tuple[int, ...]

    @property
    def actions(self) -> Iterator[tuple[str, Action]]:
        """All actions in order, with their phase."""
        for phase, of_pass in (("forward", self.forward), ("backward", self.backward)):
            for actions in of_pass:
                yield from ((phase, action) for action in actions)


def schedule(
    units: Sequence[Unit], forward: Sequence[Mark], backward: Sequence[Mark], arrival: Sequence[int], *, reduces: bool
) -> Schedule:
    """Return the actions at the marks of both passes.

    Args:
        units: the module's units.
        forward, backward: the marks of each pass.
        arrival: parameters in the order in which gradients are ready, -1 for gradients of inputs.
        reduces: whether gradients are reduced; else they are kept whole, and added to.
    """
    sharding = _Sharding(units)
    ahead = [(place, action) for place, mark in enumerate(forward) for action in sharding.forward(mark)]
    back = [tuple(sharding.backward(mark, arrival, reduces=reduces)) for mark in backward]
    lost = tuple(index for index in arrival if index >= 0 and index not in sharding.reduced) if reduces else ()
    ahead = _prefetch(ahead)
    return Schedule(
        forward=tuple(tuple(action for at, action in ahead if at == place) for place in range(len(forward))),
        backward=tuple(back),
        lost=lost,
    )


@dataclass(slots=True)
class _Sharding:
    """The state of a module's units during both passes (whole, being gathered, reduced), from which actions follow."""

    units: Sequence[Unit]
    whole: set[int] = field(default_factory=set)
    coming: set[int] = field(default_factory=set)
    reduced: set[int] = field(default_factory=set)
    order: list[int] = field(default_factory=list)  # of units, as their forwards ended
    places: dict[int, list[int]] = field(default_factory=dict)  # positions of each unit in `order`

    def forward(self, mark: Mark) -> Iterator[Action]:
        if mark.phase == "pre_forward":
            yield from self._unshard(mark.unit)
            return
        if self.units[mark.unit].reshards:
            yield from self._free(mark.unit)
        self.places.setdefault(mark.unit, []).append(len(self.order))
        self.order.append(mark.unit)

    def backward(self, mark: Mark, arrival: Sequence[int], *, reduces: bool) -> Iterator[Action]:
        if mark.phase == "post_backward":
            yield from self._free(mark.unit)
            if reduces:
                yield from self._reduce(mark.unit, set(arrival[: mark.seen]))
            return
        if mark.phase == "post_forward":  # recomputation by checkpointing
            return
        yield from self._unshard(mark.unit)
        if mark.phase == "pre_backward" and self.places.get(mark.unit):
            place = self.places[mark.unit].pop()
            if place > 0:
                # The unit whose forward ended before this one's: the backward pass needs it next.
                yield from self._gather(self.order[place - 1])

    def _gather(self, unit: int) -> Iterator[Action]:
        if unit not in self.whole and unit not in self.coming:
            self.coming.add(unit)
            yield Action("gather", unit)

    def _unshard(self, unit: int) -> Iterator[Action]:
        yield from self._gather(unit)
        if unit in self.coming:
            self.coming.remove(unit)
            self.whole.add(unit)
            yield Action("await", unit)
            yield Action("copy_out", unit)

    def _free(self, unit: int) -> Iterator[Action]:
        if unit in self.whole:
            self.whole.remove(unit)
            yield Action("free", unit)

    def _reduce(self, unit: int, arrived: set[int]) -> Iterator[Action]:
        yield Action("await_reduction", unit)
        ready = tuple(each for each in self.units[unit].parameters if each in arrived and each not in self.reduced)
        if ready:
            self.reduced.update(ready)
            yield Action("reduce", unit, ready)


def _prefetch(placed: Sequence[tuple[int, Action]]) -> list[tuple[int, Action]]:
    """Move each gather but the first directly behind the previous one, or behind the point where its unit was freed."""
    moved: list[tuple[int, Action]] = []
    over = -1  # position of the latest "await"
    for place, action in placed:
        at, mark = len(moved), place
        if action.kind == "gather" and over >= 0:
            # A unit may be used twice: its second gather waits until the first use has freed it.
            freed = [index for index in range(over, at) if moved[index][1] == Action("free", action.unit)]
            at = max([over, *freed]) + 1
            mark = moved[at - 1][0]
        moved.insert(at, (mark, action))
        if action.kind == "await":
            over = len(moved) - 1
    return moved


@dataclass(frozen=True, slots=True)
class Window:
    """A range of operators of one pass, from `begin` to before `end`, during which a unit's parameters are whole."""

    phase: str
    unit: int
    begin: int
    end: int


def windows(found: Schedule, forward: Sequence[Mark], backward: Sequence[Mark]) -> list[Window]:
    """Return the windows in which units are whole, in a forward and backward pass with these marks."""
    began: dict[int, int] = {}
    whole_windows: list[Window] = []
    for phase, actions, of_pass in (
        ("forward", found.forward, forward),
        ("backward", found.backward, backward),
    ):
        # Units that stay whole after the forward pass are whole from the backward pass's first operator on.
        began = dict.fromkeys(began, 0)
        for mark, at_mark in zip(of_pass, actions, strict=True):
            for action in at_mark:
                if action.kind == "copy_out":
                    began[action.unit] = mark.after
                elif action.kind == "free":
                    whole_windows.append(Window(phase, action.unit, began.pop(action.unit), mark.after))
        whole_windows += [Window(phase, unit, begin, sys.maxsize) for unit, begin in began.items()]
    return whole_windows


def most_held(actions: Iterable[tuple[str, Action]], size_of: Callable[[int], tuple[int, int]]) -> dict[str, int]:
    """Return the peak bytes of gathered units, by phase; `size_of` gives a unit's (gathered, parameters) bytes."""
    current, most = 0, {"forward": 0, "backward": 0}
    for phase, action in actions:
        if action.kind in ("gather", "copy_out", "free"):
            flat, whole = size_of(action.unit)
            if action.kind == "copy_out":  # both exist during the copy
                most[phase] = max(most[phase], current + whole)
            current += {"gather": flat, "copy_out": whole - flat, "free": -whole}[action.kind]
        most[phase] = max(most[phase], current)
    return most
