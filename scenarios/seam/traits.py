"""Traits of collectives by verb, without torch and independent of any library.

Programs, both worlds and reports read them: shapes of buffers, NCCL's function for a call, size and bus bytes as
nccl-tests count them, and names in traces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Function = Literal["broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits of a verb.

    Attributes:
        gives, receives: "all" elements or a rank's "share"; "" where the input tensor is also the output.
        has_root: whether one rank's part differs from all others'.
        has_splits: whether buffers are split among the members, each with its own number of bytes.
        has_sums: whether elements of the members are summed.
        function: NCCL's function; None where NCCL uses sends and receives.
        uneven: NCCL's function for each member's tensor where tensors differ in size.
        size: columns of a span whose maximum is the call's size for nccl-tests; empty: nccl-tests has no such test.
        bus: share of the size that crosses each rank's bus, divided by (n - 1) / n for n ranks; 0: the whole size does.
        letters: letters by which names in traces are recognized.
    """

    gives: str = "all"
    receives: str = ""
    has_root: bool = False
    has_splits: bool = False
    has_sums: bool = False
    function: Function | None = None
    uneven: Function | None = None
    size: tuple[str, ...] = ()
    bus: float = 0.0
    letters: tuple[str, ...] = ()

    @property
    def has_shares(self) -> bool:
        """Whether the larger buffer has an equal share for each rank."""
        return "share" in (self.gives, self.receives)

    def bus_factor(self, ranks: float) -> float:
        """Return bus bandwidth divided by algorithm bandwidth, as nccl-tests define them."""
        return self.bus * (ranks - 1) / ranks if self.bus else 1.0


_REDUCE = Traits(has_sums=True, function="all_reduce")
_SCATTER = Traits(receives="share", has_sums=True, function="reduce_scatter")
_GATHER = Traits(gives="share", receives="all", function="all_gather")
_EITHER = ("bytes_in", "bytes_out")  # the root and the others have it in opposite columns

# Names in traces are matched in this order: letters that contain a later entry's come before it.
TRAITS: dict[str, Traits] = {
    "all_reduce_coalesced": replace(_REDUCE, letters=("allreducecoalesced",)),
    "all_gather_into_tensor_coalesced": replace(_GATHER, letters=("allgatherintotensorcoalesced",)),
    "reduce_scatter_tensor_coalesced": replace(_SCATTER, letters=("reducescattertensorcoalesced",)),
    "monitored_barrier": Traits(gives="", function="all_reduce", letters=("monitoredbarrier",)),
    "all_reduce": replace(_REDUCE, size=("bytes_in",), bus=2.0, letters=("allreduce",)),
    "all_to_all_single": Traits(
        receives="all", has_splits=True, size=("bytes_in",), bus=1.0, letters=("alltoall", "sendrecv")
    ),
    "all_gather_into_tensor": replace(_GATHER, size=("bytes_out",), bus=1.0, letters=("allgather",)),
    "reduce_scatter_tensor": replace(_SCATTER, size=("bytes_in",), bus=1.0, letters=("reducescatter",)),
    "broadcast": Traits(has_root=True, function="broadcast", size=_EITHER, letters=("broadcast",)),
    "send": Traits(letters=("send",)),
    "recv": Traits(gives="", receives="all", letters=("recv",)),
    "barrier": Traits(gives="", function="all_reduce", letters=("barrier",)),
    "gather": Traits(gives="share", receives="all", has_root=True, letters=("gather",)),
    "scatter": Traits(receives="share", has_root=True, letters=("scatter",)),
    "reduce": Traits(has_root=True, has_sums=True, function="reduce", size=_EITHER, letters=("reduce",)),
    "all_to_all": Traits(receives="all", has_splits=True, size=("bytes_in",), bus=1.0),
    "all_gather": replace(_GATHER, uneven="broadcast", size=("bytes_out",), bus=1.0),
    "reduce_scatter": replace(_SCATTER, uneven="reduce", size=("bytes_in",), bus=1.0),
    "all_gather_coalesced": _GATHER,
}
EXCHANGES = tuple(verb for verb, known in TRAITS.items() if known.has_splits)
BARRIERS = tuple(verb for verb, known in TRAITS.items() if not (known.gives or known.receives))
MESSAGES = ("send", "recv")
# Functions of NCCL that pass a buffer from rank to rank; those that split it into a chunk per rank.
CHAINS: tuple[Function, ...] = ("broadcast", "reduce")
IN_CHUNKS: tuple[Function, ...] = ("all_reduce", "all_gather", "reduce_scatter")
# Collectives that program `collective` can call, and those of nccl-tests.
Timed = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
TESTED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")
