"""What the host does for an eager GPU program, in counts that do not depend on the host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class HostWork(NamedTuple):
    """Counts of what one thread of the host does before what it launches or issues next; issuing itself is beside it.

    Attributes:
        dispatches: operators that torch dispatches below autograd, views among them.
        operators: operators among them that launch kernels, except those of `products`.
        products: operators that call a library: matrix products, convolutions, attention.
        passes: backward passes that begin, in which autograd's engine starts.
        nodes: nodes that the engine runs in them.
        gradients: nodes among them that accumulate the gradient of a parameter.
        bags: passes through fbgemm's table-batched embeddings, forward or backward.
        calls: calls of Python functions, of the script and of the libraries that it uses.
        cpu_bytes: bytes that operators on CPU tensors and copies of pageable memory move; those that take longer than
            their bytes count for more.
        cpu_flops: arithmetic of operators on CPU tensors, in place of their bytes where it takes longer.
        turns: work that nothing describes and was measured, as turns of a Python loop that took as long there.
        waits_ns: time for which the thread waits for others of its host.
    """

    dispatches: int = 0
    operators: int = 0
    products: int = 0
    passes: int = 0
    nodes: int = 0
    gradients: int = 0
    bags: int = 0
    calls: int = 0
    cpu_bytes: int = 0
    cpu_flops: int = 0
    turns: int = 0
    waits_ns: int = 0

    @property
    def computed(self) -> HostWork:
        """The part that the thread computes itself, beside calls and launches."""
        return HostWork(cpu_bytes=self.cpu_bytes, cpu_flops=self.cpu_flops, turns=self.turns)

    def times(self, count: int) -> HostWork:
        """Return these counts `count` times."""
        return HostWork(*(each * count for each in self))


NO_WORK = HostWork()


def total(works: Iterable[HostWork]) -> HostWork:
    """Return the sum of counts."""
    return HostWork(*map(sum, zip(NO_WORK, *works, strict=True)))
