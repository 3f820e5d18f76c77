"""gloo, on CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from real.libraries.library import Joined, Sent, split
from real.libraries.moves import (
    EXCHANGE,
    REDUCTIONS,
    arithmetic_of,
    as_real,
    divide,
    product,
    scattered,
    starts_of,
)
from real.rank.lanes import Lane
from scenarios.seam.payload import as_bytes, resolved

_ON_CPU = dist.BarrierOptions()
_ON_CPU.device = torch.device("cpu")


class Gloo:
    """gloo, on CPU tensors: futures say when a call ended; two threads serve a group."""

    backend = "gloo"
    lanes = 2

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.starts = starts_of(self)

    @staticmethod
    def at(local_rank: int) -> Gloo:
        """The library of one rank of this machine, whose kernels take one core."""
        torch.set_num_threads(1)
        return Gloo(torch.device("cpu"))

    def new_lane(self, *, is_main: bool) -> Lane:
        """A thread of the program."""
        return Lane()

    def between_steps(self) -> None:
        """Nothing is put off."""

    def open(self, joined: Joined) -> None:
        """gloo connects its ranks when it makes a group."""

    def barrier(self, joined: Joined) -> Sent:
        """gloo's own."""
        return Sent(joined.handle.barrier(_ON_CPU))

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> Sent:
        """Through one buffer each way: gloo's own list form wants equal sizes."""
        sent = torch.cat([as_bytes(inputs[place]) for place in joined.order])
        targets = [as_bytes(outputs[place]) for place in joined.order]
        sizes = [len(target) for target in targets]
        received = torch.empty(sum(sizes), dtype=torch.uint8)
        given = [inputs[place].numel() * inputs[place].element_size() for place in joined.order]
        work = EXCHANGE(joined.handle, received, sent, sizes, given)

        def finish() -> None:
            """In group order: of outputs that share memory, the last member's stays."""
            chunks = dict(zip(joined.order, zip(targets, split(received, sizes), strict=True), strict=True))
            for place in sorted(chunks):
                target, chunk = chunks[place]
                target.copy_(chunk)

        return Sent(work, finish)

    def all_reduce(self, joined: Joined, tensor: Tensor, reduce: str) -> Sent:
        """gloo has no average: a sum, divided."""
        if tensor.is_complex() and reduce == "product":
            return product(joined, tensor)
        arithmetic = arithmetic_of(tensor)
        work = joined.handle.allreduce([arithmetic], REDUCTIONS["sum" if reduce == "avg" else reduce])
        if reduce != "avg" and arithmetic.data_ptr() == tensor.data_ptr():
            return Sent(work)

        def finish() -> None:
            if reduce == "avg":
                divide(arithmetic, joined.group.size)
            if arithmetic.data_ptr() != tensor.data_ptr():
                as_real(tensor).copy_(arithmetic)

        return Sent(work, finish)

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> Sent:
        """As gloo does it: an all-reduce of the whole input. By hand, because gloo's own hides when it ended."""
        whole = resolved(input).clone()
        return scattered(self.all_reduce(joined, whole, reduce), whole, joined, output)


LIBRARY = Gloo
