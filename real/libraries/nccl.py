"""The library NCCL, on CUDA tensors."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from real.libraries.library import DeviceLibrary
from real.libraries.moves import (
    GATHER_COALESCED,
    OPS,
    REDUCE_SCATTER,
    REDUCTIONS,
    SCATTER_COALESCED,
    WIDER,
    Joined,
    MovingCollective,
    as_real,
    overlap,
    work_of,
)
from real.rank.cuda import Anchors, CudaLane
from real.rank.lanes import StreamLane
from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.errors import ScenarioError
from scenarios.seam.payload import as_bytes, resolve_views

# Hardware queues: 1 to 32, by default 8 (CUDA C++ Programming Guide, "CUDA Environment Variables"). Streams that share
# one block each other; a rank has several streams, and one for each group's communicator.
CONNECTIONS = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}


class Nccl(DeviceLibrary):
    """The library NCCL, on CUDA tensors: one stream serves a group; has averages, uneven lists and reduce-scatter."""

    backend = "cpu:gloo,cuda:nccl"
    lanes = 1

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._flags: dict[str, Tensor] = {}
        self._anchors: Anchors | None = None
        self._streams: list[CudaLane] = []

    @classmethod
    def check_devices(cls, ranks: int) -> None:
        """Raise ScenarioError if this machine lacks a CUDA device for each rank."""
        _count_devices(ranks - 1)

    @classmethod
    def at(cls, local_rank: int) -> Nccl:
        """Return the library for one rank of this machine, on its own CUDA device, which becomes the current one.

        Raises:
            ScenarioError: this machine has no such device.
        """
        return cls(_cuda_device(local_rank))

    def new_lane(self, *, is_main: bool) -> StreamLane:
        """Open a stream of the device."""
        if self._anchors is None:
            self._anchors = Anchors(self.device)
        lane = CudaLane(self.device, self._anchors, is_main=is_main)
        self._streams.append(lane)
        return lane

    def between_steps(self) -> None:
        """Renew the clock anchors, and release what collectives have used."""
        for lane in self._streams:
            lane.between_steps()

    def open(self, joined: Joined) -> None:
        """Make the communicator by a first collective; wait for it, as the next group's set-up takes memory too."""
        # Kept for all barriers of the group: a new tensor for each would be an allocation and a launch.
        self._flags[joined.group.name] = torch.zeros(1, device=self.device)
        self.barrier(joined).work.wait()
        torch.cuda.current_stream(self.device).synchronize()

    def barrier(self, joined: Joined) -> MovingCollective:
        """All-reduce one float32, as torch's own barrier does; torch's also makes the host wait for the device."""
        return MovingCollective(joined.handle.allreduce([self._flags[joined.group.name]], REDUCTIONS["sum"]))

    def exchange(self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> MovingCollective:
        """Exchange tensors by grouped sends and receives of any size; outputs that overlap inputs get a buffer."""
        sources = [as_bytes(inputs[place]) for place in joined.order]
        targets = [as_bytes(outputs[place]) for place in joined.order]
        if any(overlap(target, source) for target in targets for source in sources):
            sources = [source.clone() for source in sources]
        work = work_of(dist.all_to_all(targets, sources, group=joined.handle, async_op=True))
        return MovingCollective(work, held=(targets, sources))

    def all_gather_list(self, joined: Joined, call: Call, issue: Issue) -> MovingCollective:
        """Call torch's own; for uneven sizes it broadcasts each tensor, in one NCCL group."""
        source, targets = as_bytes(issue.input), [as_bytes(issue.output[place]) for place in joined.order]
        source = source.clone() if any(overlap(target, source) for target in targets) else source
        return MovingCollective(
            work_of(dist.all_gather(targets, source, group=joined.handle, async_op=True)), held=source
        )

    def all_gather_coalesced(
        self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> MovingCollective:
        """Call NCCL's all-gathers in one NCCL group if the process group is in the order of global ranks.

        Otherwise, or if inputs overlap outputs, gather through one buffer.
        """
        sources, targets = [as_bytes(each) for each in inputs], [as_bytes(each) for each in outputs]
        if not joined.is_sorted or any(overlap(target, source) for target in targets for source in sources):
            return super().all_gather_coalesced(joined, outputs, inputs)
        return MovingCollective(GATHER_COALESCED(joined.handle, targets, sources), held=sources)

    def reduce_scatter_list(
        self, joined: Joined, output: Tensor, inputs: Sequence[Tensor], reduce: str
    ) -> MovingCollective:
        """Call NCCL's own reduce-scatter if NCCL reduces the dtype; else all-reduce each tensor."""
        if not self._is_plain(output, reduce):
            return super().reduce_scatter_list(joined, output, inputs, reduce)
        sources = [as_real(resolve_views(inputs[place])) for place in joined.order]
        own = as_real(output)
        work = dist.reduce_scatter(own, sources, op=OPS[reduce], group=joined.handle, async_op=True)
        return MovingCollective(work_of(work), held=sources)

    def reduce_scatter_coalesced(
        self, joined: Joined, outputs: Sequence[Tensor], inputs: Sequence[Tensor], reduce: str
    ) -> MovingCollective:
        """Call NCCL's reduce-scatters in one NCCL group, under the conditions of `reduce_scatter`."""
        if not (joined.is_sorted and self._is_plain(inputs[0], reduce)):
            return super().reduce_scatter_coalesced(joined, outputs, inputs, reduce)
        options = dist.ReduceScatterOptions()
        options.reduceOp = OPS[reduce]
        sources = [as_real(resolve_views(each)) for each in inputs]
        return MovingCollective(
            SCATTER_COALESCED(joined.handle, [as_real(each) for each in outputs], sources, options), held=sources
        )

    @staticmethod
    def _is_plain(tensor: Tensor, reduce: str) -> bool:
        """Return whether NCCL can reduce such tensors as they are."""
        return tensor.dtype not in WIDER and not (tensor.is_complex() and reduce == "product")

    def reduce_scatter(self, joined: Joined, output: Tensor, input: Tensor, reduce: str) -> MovingCollective:
        """Call NCCL's own reduce-scatter if NCCL reduces the dtype and the group is in the order of global ranks.

        Otherwise reduce as the other libraries do.
        """
        if self._is_plain(input, reduce) and joined.is_sorted:
            own, source = as_real(output), as_real(resolve_views(input))
            work = REDUCE_SCATTER(own, source, op=OPS[reduce], group=joined.handle, async_op=True)
            return MovingCollective(work_of(work), held=source)
        return super().reduce_scatter(joined, output, input, reduce)


def _cuda_device(index: int) -> torch.device:
    for name, value in CONNECTIONS.items():
        os.environ.setdefault(name, value)  # the driver reads it at initialization
    count = _count_devices(index)
    device = torch.device("cuda", 0 if count == 1 else index)
    torch.cuda.set_device(device)
    return device


def _count_devices(last: int) -> int:
    """Return the number of CUDA devices of this machine; ScenarioError if it has none, or too few for rank `last`."""
    count = torch.cuda.device_count()
    if count == 0:
        raise ScenarioError("library = 'nccl': expected CUDA devices, this machine has none; 'gloo' needs none")
    # Under `srun --gpus-per-task=1` a process sees only its own GPU, as number 0.
    if 1 < count <= last:
        raise ScenarioError(
            f"library = 'nccl': expected at most {count} ranks on this machine, one for each CUDA device"
        )
    return count


LIBRARY = Nccl
