"""Collectives in which one member's part differs: broadcast, reduce, gather, scatter, send, recv; and barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral

from torch import Tensor

from scenarios.seam.arguments import (
    Issue,
    check_list,
    check_output,
    check_rank,
    check_reduce,
    check_same_kind,
    check_target,
    check_tensor,
    size_bytes,
)
from scenarios.seam.calls import Call
from scenarios.seam.collectives.collective import Collective
from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.group import Group
from scenarios.seam.payload import Payload, Payloads, copy_bytes, take


class _Rooted(Collective):
    """A collective that sends one member's bytes to others."""

    def __init__(self, name: str, root: str, check: Callable[[Issue, str, object], Tensor] = check_target) -> None:
        """Store the name of the argument that holds the other side's rank (`root`)."""
        super().__init__(name)
        self._root, self._check = root, check

    def check(self, issue: Issue) -> Call:
        tensor = self._check(issue, "tensor", issue.input if issue.output is None else issue.output)
        root = check_root(issue, self._root)
        size, gives = size_bytes(tensor), self._gives(issue, root)
        return Call.of(
            issue,
            tensor,
            bytes_in=size if gives else 0,
            bytes_out=0 if gives else size,
            bytes_sent=size if gives else 0,
            root=issue.group.index(root),
        )

    def _gives(self, issue: Issue, root: int) -> bool:
        return issue.rank == root

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        copy_bytes(outputs[0], payloads[call.root].inputs[0])


class _Broadcast(_Rooted):
    def agreed_bytes(self, call: Call) -> int:
        return call.bytes_in + call.bytes_out

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take((issue.output,), ()) if call.group.ranks[call.root] == call.rank else take((), (issue.output,))


class _Reduce(Collective):
    """A collective that reduces all tensors into the root's, in place; the others' tensors are undefined then."""

    def check(self, issue: Issue) -> Call:
        tensor = check_target(issue, "tensor", issue.output)
        root, size = check_root(issue, "dst"), size_bytes(tensor)
        return Call.of(
            issue,
            tensor,
            bytes_in=size,
            bytes_out=size if issue.rank == root else 0,
            bytes_sent=size,
            reduce=check_reduce(issue, issue.reduce, tensor),
            root=issue.group.index(root),
        )

    def agreed_bytes(self, call: Call) -> int:
        return call.bytes_in

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take((issue.output,), (issue.output,) if call.group.ranks[call.root] == call.rank else ())

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        outputs[0].copy_(payloads.total(call))


class _Listed(Collective):
    """A collective with a tensor on each member and, on the root, a list of one tensor per member, of equal sizes."""

    def __init__(self, name: str, root: str, listed: str) -> None:
        """Store the names of the arguments that hold the root's rank and its list."""
        super().__init__(name)
        self._root, self._listed = root, listed

    def _check(self, issue: Issue, own: Tensor, listed: object, check: Callable[..., Tensor]) -> tuple[int, int, int]:
        """Return the root's group rank, this member's bytes and its list's bytes.

        Raises:
            TypeError, ValueError, CollectiveError: the root has no such list, or another member has one.
            ProgramError: members represent several ranks, only one of which could be the root.
        """
        root, group, size = check_root(issue, self._root), issue.group, size_bytes(own)
        if group.counts:
            raise ProgramError(f"{issue}: expected run.ranks = 'each', which plays all its ranks")
        if issue.rank != root:
            if listed:
                raise ValueError(f"{issue}: {self._listed} is for rank {root} alone, expected None")
            return group.index(root), size, 0
        tensors = check_list(issue, self._listed, listed, check)
        check_same_kind(issue, [own, *tensors])
        for place, tensor in enumerate(tensors):
            if size_bytes(tensor) != size:
                raise CollectiveError(
                    f"{issue}: {self._listed}[{place}] has {size_bytes(tensor)} bytes, expected {size} as tensor"
                )
        return group.index(root), size, size * len(tensors)


class _Gather(_Listed):
    """A collective that gives the root all members' tensors."""

    def check(self, issue: Issue) -> Call:
        tensor = check_tensor(issue, "tensor", issue.input)
        root, size, whole = self._check(issue, tensor, issue.output, check_output)
        return Call.of(issue, tensor, bytes_in=size, bytes_out=whole, bytes_sent=0 if whole else size, root=root)

    def agreed_bytes(self, call: Call) -> int:
        return call.bytes_in

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take((issue.input,), issue.output or ())

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        for source, output in enumerate(outputs):
            copy_bytes(output, payloads[source].inputs[0])


class _Scatter(_Listed):
    """A collective that gives each member its tensor from the root's list."""

    def check(self, issue: Issue) -> Call:
        tensor = check_output(issue, "tensor", issue.output)
        root, size, whole = self._check(issue, tensor, issue.input, check_tensor)
        sent = whole - size if whole else 0
        return Call.of(issue, tensor, bytes_in=whole, bytes_out=size, bytes_sent=sent, root=root)

    def agreed_bytes(self, call: Call) -> int:
        return call.bytes_out

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take(issue.input or (), (issue.output,))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        copy_bytes(outputs[0], payloads[call.root].inputs[call.group.index(call.rank)])


class _SendOrRecv(_Rooted):
    """A send or a recv; the two meet in a group of two, source first."""

    has_pairs = True

    def pair(self, issue: Issue) -> Group | None:
        peer, rank, group = issue.root, issue.rank, issue.group
        if isinstance(peer, bool) or not isinstance(peer, Integral) or peer not in group or peer == rank:
            return None
        source, target = (rank, int(peer)) if self.name == "send" else (int(peer), rank)
        return Group(f"{group.name}/{source}->{target}", (source, target), library=group.library)

    def agree(self, call: Call, other: Call) -> bool:
        return True

    def misfit(self, calls: Mapping[int, Call]) -> str | None:
        if len(calls) == 1:
            return None
        sender, receiver = sorted(calls.values(), key=lambda call: call.op, reverse=True)
        if (sender.bytes_in, sender.dtype) == (receiver.bytes_out, receiver.dtype):
            return None
        return (
            f"rank {sender.rank} sends {sender.bytes_in} bytes of {sender.dtype} to rank {receiver.rank},"
            f" which expects {receiver.bytes_out} of {receiver.dtype}"
        )

    def _gives(self, issue: Issue, root: int) -> bool:
        if root == issue.rank:
            raise CollectiveError(f"{issue}: a rank cannot {self.name} to itself")
        return self.name == "send"


class _Barrier(Collective):
    """A collective that moves no data."""

    def check(self, issue: Issue) -> Call:
        return Call(op=issue.op, group=issue.group, rank=issue.rank, label=issue.label, purpose=issue.purpose)


def check_root(issue: Issue, name: str) -> int:
    """Return the global rank in the argument called `name`; CollectiveError unless it is in the group."""
    root, group = check_rank(issue, name, issue.root), issue.group
    if root not in group:
        raise CollectiveError(f"{issue}: rank {root} is not in group {group.name} of {list(group.ranks)}")
    return root


BROADCAST = _Broadcast("broadcast", "src")
REDUCE = _Reduce("reduce")
GATHER = _Gather("gather", "dst", "gather_list")
SCATTER = _Scatter("scatter", "src", "scatter_list")
BARRIER = _Barrier("barrier")
MONITORED_BARRIER = _Barrier("monitored_barrier")
SEND = _SendOrRecv("send", "dst", check_tensor)
RECV = _SendOrRecv("recv", "src")
