"""The library gloo, on CPU tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from real.libraries.library import DeviceLibrary
from real.libraries.moves import EXCHANGE, Joined, MovingCollective, split
from scenarios.seam.collectives.several import Several
from scenarios.seam.payload import as_bytes

_ON_CPU = dist.BarrierOptions()
_ON_CPU.device = torch.device("cpu")


class Gloo(DeviceLibrary):
    """The library gloo, on CPU tensors: futures show when a call ends; two threads serve a group.

    Its own reduce-scatter does not show when it ended; it has no averages, and connects ranks when a group is made.
    """

    backend = "gloo"
    lanes = 2
    has_averages = False

    @classmethod
    def at(cls, local_rank: int) -> Gloo:
        """Return gloo for a rank of this machine, and limit the process's CPU kernels to one thread."""
        # Ranks share the machine's cores: more threads would compete with those of the other ranks.
        torch.set_num_threads(1)
        return cls(torch.device("cpu"))

    def barrier(self, joined: Joined) -> MovingCollective:
        """Call gloo's own barrier."""
        return MovingCollective(joined.handle.barrier(_ON_CPU))

    def monitored_barrier(self, joined: Joined) -> MovingCollective:
        """Call gloo's own monitored barrier, which blocks until it is over."""
        # torch gives no work for it, so an empty one stands for a call that is already over.
        joined.handle.monitored_barrier()  # type: ignore[attr-defined]
        return MovingCollective(Several())

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> MovingCollective:
        """Exchange tensors through one buffer each way, as gloo's own list form requires equal sizes."""
        sent = torch.cat([as_bytes(inputs[place]) for place in joined.order])
        targets = [as_bytes(outputs[place]) for place in joined.order]
        sizes = [len(target) for target in targets]
        received = torch.empty(sum(sizes), dtype=torch.uint8)
        given = [inputs[place].numel() * inputs[place].element_size() for place in joined.order]
        work = EXCHANGE(joined.handle, received, sent, sizes, given)

        def finish() -> None:
            """Copy out the received parts in group order: if outputs share memory, the last member's data stays."""
            chunks = dict(zip(joined.order, zip(targets, split(received, sizes), strict=True), strict=True))
            for place in sorted(chunks):
                target, chunk = chunks[place]
                target.copy_(chunk)

        return MovingCollective(work, finish)


LIBRARY = Gloo
