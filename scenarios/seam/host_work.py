"""Work of the host of an eager GPU program, in counts that do not depend on the host's speed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class HostWork(NamedTuple):
    """Counts of what one host thread does before its next launch or call; launching itself is not counted here.

    Attributes:
        dispatches: operators that torch dispatches below autograd, views included.
        operators: those operators that launch kernels, except `products`.
        products: operators that call a library: matrix products, convolutions, attention.
        passes: backward passes that begin, each of which starts autograd's engine.
        nodes: nodes that the engine runs in these passes.
        gradients: nodes that accumulate the gradient of a parameter.
        bags: passes through fbgemm's table-batched embeddings, forward or backward.
        calls: calls of Python functions, in the script and in the libraries that it uses.
        cpu_bytes: bytes moved by operators on CPU tensors and by copies of pageable memory; operators slower than their
            bytes count for more.
        cpu_flops: arithmetic of operators on CPU tensors, in place of their bytes where it takes longer.
        turns: measured work that has no other description, as turns of a Python loop that take equally long.
        waits_ns: time for which the thread waits for other threads of its host.
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
    def own_work(self) -> HostWork:
        """Work that the thread computes itself: neither calls nor launches."""
        return HostWork(cpu_bytes=self.cpu_bytes, cpu_flops=self.cpu_flops, turns=self.turns)

    def times(self, count: int) -> HostWork:
        """Return the counts multiplied by `count`."""
        return HostWork(*(each * count for each in self))


NO_WORK = HostWork()


def total(works: Iterable[HostWork]) -> HostWork:
    """Return the sum of all counts."""
    return HostWork(*map(sum, zip(NO_WORK, *works, strict=True)))
