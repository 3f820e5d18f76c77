"""A fully sharded module's passes cut into computations and the actions between them, in order."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from scenarios.modules.fully_sharded.schedule import Action, Schedule
from scenarios.modules.fully_sharded.units import Mark
from scenarios.modules.fusion import Fusion
from scenarios.modules.recorder import Operator
from scenarios.modules.trace import Ready, Trace, cost_of
from scenarios.seam.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStep:
    """A pass's operators (None: none) up to `stop` (None: the end), followed by `actions`.

    `needs` are arguments whose values the pass waits for.
    """

    kernel: Kernel | None
    stop: Ready | Mark | None = None
    needs: tuple[int, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(slots=True)
class _Cutter:
    operators: Sequence[Operator]
    fuses: Fusion
    begin: int = 0

    def up_to(self, after: int) -> Kernel | None:
        """Return the cost of the operators from the last cut to before number `after`."""
        chosen, self.begin = self.operators[self.begin : after], after
        return cost_of(chosen, fuses=self.fuses) if chosen else None


def forward_steps(traced: Trace, found: Schedule) -> Iterator[PassStep]:
    """Yield the forward pass, cut at units with actions and at first uses of late arguments."""
    cutter, seen = _Cutter(traced.forward, traced.fuses), 0
    for mark, actions in zip(traced.marks[0], found.forward, strict=True):
        for need in traced.needs[seen : mark.seen]:
            yield PassStep(kernel=cutter.up_to(need.after), needs=need.tensors)
        seen = mark.seen
        if actions:
            yield PassStep(kernel=cutter.up_to(mark.after), stop=mark, actions=actions)
    for need in traced.needs[seen:]:
        yield PassStep(kernel=cutter.up_to(need.after), needs=need.tensors)
    yield PassStep(kernel=cutter.up_to(len(traced.forward)))


def backward_steps(traced: Trace, found: Schedule, waited: Container[int]) -> Iterator[PassStep]:
    """Yield the backward pass, cut at units, and where the gradient of an input in `waited` is ready."""
    cutter, seen = _Cutter(traced.backward, traced.fuses), 0
    for mark, actions in zip(traced.marks[1], found.backward, strict=True):
        for ready in traced.ready[seen : mark.seen]:
            if ready.input in waited:
                yield PassStep(kernel=cutter.up_to(ready.after), stop=ready)
        seen = mark.seen
        if actions:
            yield PassStep(kernel=cutter.up_to(mark.after), stop=mark, actions=actions)
    for ready in traced.ready[seen:]:
        if ready.input in waited:
            yield PassStep(kernel=cutter.up_to(ready.after), stop=ready)
    yield PassStep(kernel=cutter.up_to(len(traced.backward)))
