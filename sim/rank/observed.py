"""Records the computations of one rank in its last steps, from which changes of its program are proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scenarios.seam.host_work import HostWork, total
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.moves import HostCopy
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.trace import COPYING

# The last two complete steps, and one that a pipeline may have begun.
_MOST_STEPS = 3
# Operators that copy a batch to the GPU, and other tensors.
_COPIES = frozenset({"copy_", "_to_copy"})


@dataclass(frozen=True, slots=True)
class ObservedComputation:
    """A computation of a step: its label, its kernel and its role."""

    label: str
    kernel: Kernel
    role: str = ""

    def operations(self) -> Iterator[tuple[Operation, int]]:
        """Yield the operators that have a law, each with how often it runs."""
        for leaf in leaves(self.kernel):
            for operation in leaf.operations:
                yield operation, leaf.count


# Returns the kernel that is simulated in place of the computation's own.
Rewrite = Callable[[ObservedComputation], Kernel]


def as_it_is(one: ObservedComputation) -> Kernel:
    """Return the computation's own kernel."""
    return one.kernel


@dataclass(slots=True)
class ObservedStep:
    """A record of a rank's step: its computations in order, and `waits`, the positions in that list at which the host
    waited for the GPU.
    """

    computed: list[ObservedComputation] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def operations(self) -> Iterator[tuple[str, Operation, int]]:
        """Yield (label of the computation, operator, how often it runs) for operators that have a law."""
        for one in self.computed:
            for operation, times in one.operations():
                yield one.label, operation, times

    @property
    def host(self) -> HostWork:
        """Host work before all kernels were launched."""
        return total(one.kernel.host for one in self.computed)

    @property
    def reads_back(self) -> bool:
        """Whether the host waited for the GPU between two computations, not counting copies such as a batch's."""
        work = [place for place, one in enumerate(self.computed) if not _is_input(one)]
        return bool(work) and any(work[0] < place <= work[-1] for place in self.waits)


class Observed:
    """A record of the last steps of one rank, filled while it runs."""

    def __init__(self) -> None:
        self._steps: dict[int, ObservedStep] = {}

    def record_computation(self, step: int, one: ObservedComputation) -> None:
        """Record a computation of a step."""
        self._step(step).computed.append(one)

    def record_wait(self, step: int) -> None:
        """Record that the host waited for the GPU before the step's next computation."""
        one = self._step(step)
        one.waits.append(len(one.computed))

    @property
    def last(self) -> ObservedStep:
        """Last step; an empty one if nothing was computed."""
        return self._steps[max(self._steps)] if self._steps else ObservedStep()

    @property
    def before(self) -> ObservedStep | None:
        """Step before the last one; None if there is none."""
        numbers = sorted(self._steps)
        return self._steps[numbers[-2]] if len(numbers) > 1 else None

    def _step(self, number: int) -> ObservedStep:
        if number not in self._steps:
            self._steps[number] = ObservedStep()
            if len(self._steps) > _MOST_STEPS:
                del self._steps[min(self._steps)]
        return self._steps[number]


def leaves(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernels without parts that a kernel is made of, recursively."""
    if not kernel.parts:
        yield kernel
    for part in kernel.parts:
        yield from leaves(part)


def _is_input(one: ObservedComputation) -> bool:
    if all(leaf.kind == COPYING for leaf in leaves(one.kernel)):  # in scripts, copies between CPU and GPU have no law
        return True
    operations = [operation for operation, _ in one.operations()]
    return bool(operations) and all(map(_is_copy, operations))


def _is_copy(operation: Operation) -> bool:
    return isinstance(operation, HostCopy) or (isinstance(operation, Pointwise) and operation.name in _COPIES)
