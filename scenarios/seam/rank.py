"""Defines `Rank`, a program's interface: torch.distributed's verbs, computation, streams and steps.

A verb *issues* and returns a `Work`; `await` *waits* and gives the result. Work between the two overlaps, in every
world. Names, argument order and semantics are those of torch.distributed (2.13).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from copy import copy
from itertools import count
from typing import Any, TypeVar

from torch import Tensor
from torch.distributed import ReduceOp

from scenarios.seam.arguments import Issue, check_label, check_role
from scenarios.seam.backend import Backend, Done, Work
from scenarios.seam.calls import MISTAKES
from scenarios.seam.collectives import Collective, coalesced, exchange, lists, reduction, refused_call, rooted
from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group, Groups
from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import PricedLater, price_now
from scenarios.seam.roles import NO_PURPOSE, ROLES
from scenarios.sharding_kind import ShardingKind

T = TypeVar("T")


class Rank:
    """One rank as a program sees it, bound to one stream (initially "main").

    `device` is where payload tensors live: "meta" in a simulation with payload "sizes", else "cpu" or "cuda".
    `control_device` is where tensors live whose values decide the sizes of others (split sizes, lengths): never "meta".
    All members of a group issue its collectives in the same order. Groups belong to a stream: a sibling made by
    `stream` has its own `world`, `intra` (the ranks of this host) and `cross` (those of the same local rank on all
    hosts), so that streams cannot cross each other's order. Split sizes are integers; only where members of a group
    represent several ranks they may be expected values. All ranks in the verbs are global ranks. `role` says what an
    operation is for, one of `scenarios.seam.roles`; default: the role given to `for_role`, or none.

    `place` is this rank's number within `world`, `places` are those of all its members, and `hosts` the hosts of the
    members of `cross`. Places and `hosts` differ from global ranks and hosts only where `within` has made groups of
    some ranks.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._devices = tuple(dict.fromkeys((backend.device.type, backend.control_device.type)))
        self._group_numbers = count(1)
        self.rank, self.world_size = backend.rank, backend.world_size
        self.local_world_size = backend.local_world_size
        self.host, self.local_rank = divmod(backend.rank, backend.local_world_size)
        self.device, self.control_device = backend.device, backend.control_device
        self.world, self.intra, self.cross = backend.world, backend.intra, backend.cross
        self.place, self.places = self.rank, self.world.ranks
        self._purpose = NO_PURPOSE

    def new_group(self, ranks: Sequence[int]) -> Group:
        """Make a group on this stream; every rank, member or not, makes the same calls in the same order."""
        prefix = "" if self.backend.stream == "main" else f"{self.backend.stream}/"
        return self.backend.new_group(f"{prefix}group{next(self._group_numbers)}", ranks)

    def within(self, groups: Groups) -> Rank:
        """Return this rank, on the same stream, with these groups as its `world`, `intra` and `cross`.

        Sizes, `host`, `local_rank` and `place` are as if there were no other ranks; verbs still take global ranks.
        """
        made = copy(self)
        made.world, made.intra, made.cross = groups.world, groups.intra, groups.cross
        made.world_size, made.local_world_size = groups.world.size, groups.intra.size
        made.place, made.places = groups.world.index(self.rank), tuple(range(groups.world.size))
        made.host, made.local_rank = divmod(made.place, made.local_world_size)
        return made

    def for_role(self, role: str) -> Rank:
        """Return this rank with a default role for its operations.

        Raises:
            ValueError: there is no such role.
        """
        check_role(f"rank {self.rank}: for_role", role)
        made = copy(self)
        made._purpose = self._purpose._replace(role=role)
        return made

    def for_tables(self, sharding: ShardingKind) -> Rank:
        """Return this rank with the sharding type of the tables that its operations are for."""
        made = copy(self)
        made._purpose = self._purpose._replace(sharding=sharding.value)
        return made

    @property
    def hosts(self) -> Sequence[int]:
        """Hosts of the members of `cross`."""
        if self.places is not self.world.ranks:
            return range(self.cross.size)
        return [member // self.local_world_size for member in self.cross.ranks]

    def stream(self, name: str) -> Rank:
        """Return this rank on a new stream, with its own groups; every rank makes the same calls, in the same order."""
        made = Rank(self.backend.open_stream(name))
        made._purpose = self._purpose
        return made

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Work[T]:
        """Run a coroutine on this stream, concurrently with the caller; coroutines of one stream run in sequence."""
        return self.backend.spawn(coroutine)

    def after(self, work: Work[Any]) -> None:
        """Start the next operation of this stream only after that work, of any stream; the program does not wait.

        The work counts as awaited, so that its errors are those of the run.
        """
        self.backend.after(work)

    async def synchronize(self, work: Work[T]) -> T:
        """Wait for a work on the host, as a program does to read a value; an await only lets a stream wait.

        Later launches begin after the work has ended. The work counts as awaited; its result is returned.
        """
        return await self.backend.synchronize(work)

    def host_work(self, work: HostWork) -> int:
        """Count host work of an eager GPU program before its next launch or call; the host runs ahead of the GPU.

        A computation's host work is part of its kernel (`Kernel.host`), and each collective counts its own. Return the
        time, in ns, at which the host will have finished.
        """
        return self.backend.host_work(work)

    def step(self, index: int) -> AbstractContextManager[None]:
        """Assign what is issued inside to training step `index`, and record the step's span."""
        return self.backend.step(index)

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a metric of this rank and step (the loss, say); meta tensors are ignored."""
        if not (isinstance(value, Tensor) and value.is_meta):
            self.backend.record(name, value)

    def compute(
        self, kernel: PricedLater, function: Callable[..., T], *arguments: object, label: str = "", role: str = ""
    ) -> Work[T]:
        """Run `function(*arguments)` on this rank's device, at the cost that `kernel` describes.

        Exceptions of `function` are raised where the Work is awaited. If `kernel` is a function that returns the
        kernel, predictions call it at once and real ranks after the step, so that pricing costs no measured time.

        Raises:
            TypeError: `label` is no str.
            ValueError: there is no such `role`.
        """
        if type(label) is not str:
            check_label(f"rank {self.rank}: compute", label)
        if role and role not in ROLES:
            check_role(f"rank {self.rank}: compute", role)
        purpose = self._purpose._replace(role=role) if role else self._purpose
        return self.backend.compute(kernel, label or price_now(kernel).kind, function, arguments, purpose)

    def all_to_all(
        self,
        output_tensor_list: list[Tensor],
        input_tensor_list: list[Tensor],
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[list[Tensor]]:
        """Exchange a tensor with each member; uneven sizes and complex tensors are allowed."""
        return self._issue(exchange.ALL_TO_ALL, group, label, role, input=input_tensor_list, output=output_tensor_list)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[float] | None = None,
        input_split_sizes: Sequence[float] | None = None,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Exchange rows of one tensor, by default an equal share with each member."""
        splits = output_split_sizes, input_split_sizes
        return self._issue(exchange.ALL_TO_ALL_SINGLE, group, label, role, input=input, output=output, splits=splits)

    def all_reduce(
        self,
        tensor: Tensor,
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Reduce a tensor over all members, in place."""
        return self._issue(reduction.ALL_REDUCE, group, label, role, input=tensor, output=tensor, reduce=op)

    def all_reduce_coalesced(
        self,
        tensors: list[Tensor],
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[list[Tensor]]:
        """Reduce several tensors of one dtype over all members, in place, as one call: one launch, one latency."""
        return self._issue(coalesced.ALL_REDUCE_COALESCED, group, label, role, input=tensors, output=tensors, reduce=op)

    def reduce_scatter_tensor(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Reduce the inputs of all members and give each member its share."""
        return self._issue(reduction.REDUCE_SCATTER_TENSOR, group, label, role, input=input, output=output, reduce=op)

    def all_gather_into_tensor(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Gather the inputs of all members, concatenated in group order."""
        return self._issue(
            reduction.ALL_GATHER_INTO_TENSOR, group, label, role, input=input_tensor, output=output_tensor
        )

    def all_gather(
        self, tensor_list: list[Tensor], tensor: Tensor, group: Group | None = None, *, label: str = "", role: str = ""
    ) -> Work[list[Tensor]]:
        """Gather the inputs of all members, each into its own tensor; sizes may differ between members."""
        return self._issue(lists.ALL_GATHER, group, label, role, input=tensor, output=tensor_list)

    def reduce_scatter(
        self,
        output: Tensor,
        input_list: list[Tensor],
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Reduce a tensor for each member and give it to that member; sizes may differ between members."""
        return self._issue(lists.REDUCE_SCATTER, group, label, role, input=input_list, output=output, reduce=op)

    def all_gather_into_tensor_coalesced(
        self,
        output_tensors: list[Tensor],
        input_tensors: list[Tensor],
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[list[Tensor]]:
        """Gather several inputs as `all_gather_into_tensor` does, as one call."""
        gather = coalesced.ALL_GATHER_INTO_TENSOR_COALESCED
        return self._issue(gather, group, label, role, input=input_tensors, output=output_tensors)

    def all_gather_coalesced(
        self,
        output_tensor_lists: list[list[Tensor]],
        input_tensor_list: list[Tensor],
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[list[list[Tensor]]]:
        """Gather several inputs as one call; the output has a list of tensors for each member."""
        gather = coalesced.ALL_GATHER_COALESCED
        return self._issue(gather, group, label, role, input=input_tensor_list, output=output_tensor_lists)

    def reduce_scatter_tensor_coalesced(
        self,
        output_tensors: list[Tensor],
        input_tensors: list[Tensor],
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[list[Tensor]]:
        """Reduce and scatter several inputs as `reduce_scatter_tensor` does, as one call."""
        scatter = coalesced.REDUCE_SCATTER_TENSOR_COALESCED
        return self._issue(scatter, group, label, role, input=input_tensors, output=output_tensors, reduce=op)

    def broadcast(
        self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "", role: str = ""
    ) -> Work[Tensor]:
        """Copy the tensor of the global rank `src` to all members."""
        return self._issue(rooted.BROADCAST, group, label, role, input=tensor, output=tensor, root=src)

    def reduce(
        self,
        tensor: Tensor,
        dst: int,
        op: ReduceOp.RedOpType = ReduceOp.SUM,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Reduce a tensor over all members into that of the global rank `dst`; other tensors are undefined then."""
        return self._issue(rooted.REDUCE, group, label, role, input=tensor, output=tensor, reduce=op, root=dst)

    def gather(
        self,
        tensor: Tensor,
        gather_list: list[Tensor] | None,
        dst: int,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[list[Tensor] | None]:
        """Gather the tensors of all members on the global rank `dst`, which alone passes a list."""
        return self._issue(rooted.GATHER, group, label, role, input=tensor, output=gather_list, root=dst)

    def scatter(
        self,
        tensor: Tensor,
        scatter_list: list[Tensor] | None,
        src: int,
        group: Group | None = None,
        *,
        label: str = "",
        role: str = "",
    ) -> Work[Tensor]:
        """Give each member its tensor from the list of the global rank `src`, which alone passes a list."""
        return self._issue(rooted.SCATTER, group, label, role, input=scatter_list, output=tensor, root=src)

    def barrier(self, group: Group | None = None, *, label: str = "", role: str = "") -> Work[None]:
        """Wait until all members have entered."""
        return self._issue(rooted.BARRIER, group, label, role)

    def monitored_barrier(self, group: Group | None = None, *, label: str = "", role: str = "") -> Work[None]:
        """Wait until all members have entered, through the first member, which would report missing ones."""
        return self._issue(rooted.MONITORED_BARRIER, group, label, role)

    def send(
        self, tensor: Tensor, dst: int, group: Group | None = None, *, label: str = "", role: str = ""
    ) -> Work[None]:
        """Send a tensor to the global rank `dst`."""
        return self._issue(rooted.SEND, group, label, role, input=tensor, root=dst)

    def recv(
        self, tensor: Tensor, src: int, group: Group | None = None, *, label: str = "", role: str = ""
    ) -> Work[Tensor]:
        """Receive a tensor from the global rank `src`."""
        return self._issue(rooted.RECV, group, label, role, output=tensor, root=src)

    def _issue(self, collective: Collective, group: Group | None, label: str, role: str, **given: Any) -> Work[Any]:
        """Check a call and issue it to the backend; raise if the check refuses it.

        A refused call still takes its place in the group's order of calls, so that the other members' calls fail too
        and do not wait forever.
        """
        backend, op = self.backend, collective.name
        if group is None:
            group = self.world
        elif not isinstance(group, Group):
            raise TypeError(f"rank {self.rank}: {op}: group must be a Group, got {type(group).__name__}")
        if not backend.knows(group):  # the members cannot be found, so that no other rank could fail with it
            raise CollectiveError(
                f"rank {self.rank}: {op}: group {group.name} of {list(group.ranks)} is not of this run;"
                " make it with new_group"
            )
        purpose = self._purpose._replace(role=role) if role else self._purpose
        issue = Issue(op, self.rank, group, label, purpose, **given)
        if self.rank not in group.ranks:
            ranks = list(group.ranks)
            warnings.warn(f"{issue}: not a member of group {group.name} of {ranks}; nothing is done", stacklevel=3)
            return Done()
        meets_in = collective.pair(issue) if collective.has_pairs else group
        try:
            if type(label) is not str:
                check_label(issue, label)
            if role and role not in ROLES:
                check_role(issue, role)
            call = collective.check(issue)
            if call.device and call.device not in self._devices:
                raise CollectiveError(f"{issue}: tensors are on {call.device}, expected {' or '.join(self._devices)}")
        except MISTAKES as mistake:
            if meets_in is not None:
                backend.refuse(refused_call(issue, mistake), meets_in)
            raise
        assert meets_in is not None, "what passed the checks has a peer"
        return backend.issue(call, meets_in, issue)
