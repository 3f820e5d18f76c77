"""The seam: what a program may ask of a rank. `sim.rank.rank.SimRank` and `real.rank.rank.TorchRank` answer.

A verb *issues* and returns a `Work`; `await` *waits* and gives the result. What stands between the two overlaps, in
both worlds. Names, argument order and semantics are those of torch.distributed (2.13).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import mul
from typing import Any, Protocol, TypeVar, overload

import torch
from torch import Tensor
from torch.distributed import ReduceOp

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Work(Protocol[T_co]):
    """Something issued. It must be awaited once before the program ends; until then its outputs are undefined."""

    def __await__(self) -> Generator[Any, Any, T_co]: ...


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: the global ranks in it, in group order. `name` is unique in a run, the same on all members.

    Where a prediction plays one host for all that are alike, the ranks of the others are not there: each member stands
    for `counts` ranks, itself among them (docs/scale.md). Empty: each for itself alone. What a member sends to another
    it then sends to each rank that the other stands for: splits go by member, and add up by `total`.
    """

    name: str
    ranks: tuple[int, ...]
    counts: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """How many ranks are in it."""
        return sum(self.counts) if self.counts else len(self.ranks)

    @overload
    def total(self, of_each: Sequence[int]) -> int: ...
    @overload
    def total(self, of_each: Sequence[float]) -> float: ...
    def total(self, of_each: Sequence[float]) -> float:
        """Of one number for each rank, given by member."""
        return sum(map(mul, of_each, self.counts)) if self.counts else sum(of_each)

    def index(self, rank: int) -> int:
        """The group rank of a global rank; ValueError if it is no member."""
        return self.ranks.index(rank)

    def __contains__(self, rank: object) -> bool:
        return rank in self.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What a computation costs, in numbers that do not depend on the device.

    `kind` is the row of the efficiency table ("gemm", "embedding_lookup", "embedding_update", "bucketize", "permute",
    "elementwise", "reduction", "qr", "optimizer"); `dtype` the arithmetic's ("float32", ...).

    `launches` are the operators that do work, as torch dispatches them below autograd on CPU tensors; on a GPU each is
    about one kernel. Views, metadata, memory without values and reading a single number count nothing, a function that
    numba compiled counts one. `bytes_read` and `bytes_written` are what they touch, as if each found nothing in a
    cache; small operands (indices, a number a row) may be left out.
    """

    kind: str
    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    dtype: str = "float32"
    launches: int = 1


class Rank(Protocol):
    """One rank as a program sees it, bound to one stream (the "main" one at first).

    `device` is where payload tensors live: "meta" in a simulation with payload "sizes", else "cpu" or "cuda".
    `control_device` is where tensors live whose values decide the sizes of others (split sizes, lengths): never "meta".
    Collectives on a group are issued in the same order by all its members. Groups belong to a stream: a sibling made
    by `stream` has its own `world`, `intra` and `cross`, so that streams cannot cross each other's order. Split sizes
    are whole numbers, but where members of a group stand for several ranks: there they may be expected ones.
    """

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def local_rank(self) -> int: ...
    @property
    def local_world_size(self) -> int: ...
    @property
    def host(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def control_device(self) -> torch.device: ...
    @property
    def world(self) -> Group: ...
    @property
    def intra(self) -> Group: ...  # the ranks of this host
    @property
    def cross(self) -> Group: ...  # the ranks of the same local rank on all hosts

    def new_group(self, ranks: Sequence[int]) -> Group:
        """A further group on this stream; every rank of the world calls this, in the same order, member or not."""
        ...

    def stream(self, name: str) -> Rank:
        """This rank on another stream, with groups of its own; every rank calls this, in the same order."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Run a coroutine on this stream, beside the caller's; those of one stream run one after the other."""
        ...

    def step(self, index: int) -> AbstractContextManager[None]:
        """Everything issued inside belongs to training step `index`; records the step's own span."""
        ...

    def record(self, name: str, value: Tensor | float) -> None:
        """Keep a number of this rank and step (the loss, say); a meta tensor is not kept."""
        ...

    def compute(self, kernel: Kernel, function: Callable[..., T], *arguments: object, label: str = "") -> Work[T]:
        """Run `function(*arguments)` on this rank's device, at the cost that `kernel` names."""
        ...

    def all_to_all(
        self,
        output_tensor_list: list[Tensor],
        input_tensor_list: list[Tensor],
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[list[Tensor]]: ...

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[float] | None = None,
        input_split_sizes: Sequence[float] | None = None,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[Tensor]: ...

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp.RedOpType = ReduceOp.SUM, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]: ...

    def reduce_scatter_tensor(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
    ) -> Work[Tensor]: ...

    def all_gather_into_tensor(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Group | None = None, *, label: str = ""
    ) -> Work[Tensor]: ...

    def broadcast(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]: ...

    def barrier(self, group: Group | None = None, *, label: str = "") -> Work[None]: ...

    def send(self, tensor: Tensor, dst: int, group: Group | None = None, *, label: str = "") -> Work[None]: ...

    def recv(self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "") -> Work[Tensor]: ...
