"""Broadcast, send and recv, whose bytes come from one member; and the barrier, which has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral

from torch import Tensor

from scenarios.seam.arguments import Issue, check_rank, check_target, check_tensor, size_bytes
from scenarios.seam.calls import Call
from scenarios.seam.collectives.collective import Collective
from scenarios.seam.errors import CollectiveError
from scenarios.seam.group import Group
from scenarios.seam.payload import Payload, Payloads, as_bytes, take


class _Rooted(Collective):
    """Bytes that go from one member, the sender, to others."""

    def __init__(self, name: str, root: str, check: Callable[[Issue, str, object], Tensor] = check_target) -> None:
        """`root` is what the argument is called that names the other side."""
        super().__init__(name)
        self._root, self._check = root, check

    def check(self, issue: Issue) -> Call:
        tensor = self._check(issue, "tensor", issue.input if issue.output is None else issue.output)
        root, group = check_rank(issue, self._root, issue.root), issue.group
        if root not in group:
            raise CollectiveError(f"{issue}: rank {root} is not in group {group.name} of {list(group.ranks)}")
        size, gives = size_bytes(tensor), self._gives(issue, root)
        return Call.of(
            issue,
            tensor,
            bytes_in=size if gives else 0,
            bytes_out=0 if gives else size,
            bytes_sent=size if gives else 0,
            root=group.index(root),
        )

    def _gives(self, issue: Issue, root: int) -> bool:
        return issue.rank == root

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        as_bytes(outputs[0]).copy_(as_bytes(payloads[call.root].inputs[0]))


class _Broadcast(_Rooted):
    def agreed_bytes(self, call: Call) -> int:
        return call.bytes_in + call.bytes_out

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take((issue.output,), ()) if call.group.ranks[call.root] == call.rank else take((), (issue.output,))


class _Message(_Rooted):
    """A send or a recv: the two meet in a group of their own, source first."""

    has_pairs = True

    def pair(self, issue: Issue) -> Group | None:
        peer, rank, group = issue.root, issue.rank, issue.group
        if isinstance(peer, bool) or not isinstance(peer, Integral) or peer not in group or peer == rank:
            return None
        source, target = (rank, int(peer)) if self.name == "send" else (int(peer), rank)
        return Group(f"{group.name}/{source}->{target}", (source, target))

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
    """Moves nothing."""

    def check(self, issue: Issue) -> Call:
        return Call(op=issue.op, group=issue.group, rank=issue.rank, label=issue.label)


BROADCAST = _Broadcast("broadcast", "src")
BARRIER = _Barrier("barrier")
SEND = _Message("send", "dst", check_tensor)
RECV = _Message("recv", "src")
