"""A fully sharded module's passes cut into what is computed and what is done between, in order."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from scenarios.modules.fully_sharded.schedule import Action, Schedule
from scenarios.modules.fully_sharded.units import Mark
from scenarios.modules.recorder import Operator
from scenarios.modules.trace import Ready, Trace, cost_of
from scenarios.seam.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class PassStep:
    """Operators, None where there are none, up to `stop`, None: the end; then what is done there.

    `needs` are arguments whose values are to be waited for.
    """

    kernel: Kernel | None
    stop: Ready | Mark | None = None
    needs: tuple[int, ...] = ()
    actions: tuple[Action, ...] = ()


@dataclass(slots=True)
class _Cutter:
    operators: Sequence[Operator]
    fuses: bool
    begin: int = 0

    def up_to(self, after: int) -> Kernel | None:
        """What comes next and before that many operators."""
        chosen, self.begin = self.operators[self.begin : after], after
        return cost_of(chosen, fuses=self.fuses) if chosen else None


def forward_steps(traced: Trace, found: Schedule) -> Iterator[PassStep]:
    """The forward pass: it stops where something is done at a unit, and where it needs what is late."""
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
    """The backward pass: it stops at units, and where the gradient of an input that is `waited` for is ready."""
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
