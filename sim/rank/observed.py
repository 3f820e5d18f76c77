"""Records what one rank computes in its last steps, from which changes of its program are proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scenarios.seam.host_work import HostWork, total
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.moves import HostCopy
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.trace import COPYING

# The last step and the one before it, with one that a pipeline has begun meanwhile.
_MOST_STEPS = 3
# Operators that bring a batch to the GPU, among others.
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


# A function of a computation, which gives the kernel that is simulated in place of its own.
Rewrite = Callable[[ObservedComputation], Kernel]


def as_it_is(one: ObservedComputation) -> Kernel:
    """Return the kernel that the program computes."""
    return one.kernel


@dataclass(slots=True)
class ObservedStep:
    """A record of a rank's step: its computations in order, and before which of them its host waited for the GPU."""

    computed: list[ObservedComputation] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def operations(self) -> Iterator[tuple[str, Operation, int]]:
        """Yield the operators that have a law: the label of the computation, the operator, how often it runs."""
        for one in self.computed:
            for operation, times in one.operations():
                yield one.label, operation, times

    @property
    def host(self) -> HostWork:
        """Return what the host did before it had launched all."""
        return total(one.kernel.host for one in self.computed)

    @property
    def reads_back(self) -> bool:
        """Whether the host waited for the GPU between two computations; copies, as of a batch, aside."""
        work = [place for place, one in enumerate(self.computed) if not _is_input(one)]
        return bool(work) and any(work[0] < place <= work[-1] for place in self.waits)


class Observed:
    """A record of the last steps of one rank, filled while it runs."""

    def __init__(self) -> None:
        self._steps: dict[int, ObservedStep] = {}

    def computed(self, step: int, one: ObservedComputation) -> None:
        """Note a computation of a step."""
        self._step(step).computed.append(one)

    def waited(self, step: int) -> None:
        """Note that the host has waited for the GPU, before what it computes next in the step."""
        one = self._step(step)
        one.waits.append(len(one.computed))

    @property
    def last(self) -> ObservedStep:
        """Return the last step; an empty one where nothing was computed."""
        return self._steps[max(self._steps)] if self._steps else ObservedStep()

    @property
    def before(self) -> ObservedStep | None:
        """Return the step before the last one; None where there is none."""
        numbers = sorted(self._steps)
        return self._steps[numbers[-2]] if len(numbers) > 1 else None

    def _step(self, number: int) -> ObservedStep:
        if number not in self._steps:
            self._steps[number] = ObservedStep()
            if len(self._steps) > _MOST_STEPS:
                del self._steps[min(self._steps)]
        return self._steps[number]


def leaves(kernel: Kernel) -> Iterator[Kernel]:
    """Yield a kernel's parts, and theirs, as far as they have none; or the kernel itself."""
    if not kernel.parts:
        yield kernel
    for part in kernel.parts:
        yield from leaves(part)


def _is_input(one: ObservedComputation) -> bool:
    if all(leaf.kind == COPYING for leaf in leaves(one.kernel)):  # of scripts: copies between CPU and GPU have no law
        return True
    operations = [operation for operation, _ in one.operations()]
    return bool(operations) and all(map(_is_copy, operations))


def _is_copy(operation: Operation) -> bool:
    return isinstance(operation, HostCopy) or (isinstance(operation, Pointwise) and operation.name in _COPIES)
