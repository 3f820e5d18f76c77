"""Base class of all collectives: checks, agreement of the members, and payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.payload import Payload, Payloads, take


class Collective:
    """An operation of torch.distributed; `name` is its verb, and unique.

    `has_pairs`: members meet in pairs, not all at once; `has_splits`: each pair exchanges its own number of bytes.
    """

    has_pairs = has_splits = False

    def __init__(self, name: str) -> None:
        self.name = name
        COLLECTIVES[name] = self

    def check(self, issue: Issue) -> Call:
        """Check the arguments of an issued verb and return this rank's call.

        Raises:
            TypeError, ValueError, CollectiveError: the arguments are wrong by themselves.
        """
        raise AssertionError(f"{self.name} checks its arguments")

    def pair(self, issue: Issue) -> Group | None:
        """Return the group of two in which a message's sender and receiver meet, source first; None if there is no
        peer.
        """
        raise AssertionError(f"{self.name} is no message between two")

    def agreed_bytes(self, call: Call) -> int:
        """Return the bytes that must be equal on all members; 0 where they may differ."""
        return 0

    def agree(self, call: Call, other: Call) -> bool:
        """Return whether two members' calls agree in everything that must be equal."""
        return (
            call.op == other.op
            and call.root == other.root
            and call.reduce == other.reduce
            and call.dtype == other.dtype
            and call.device == other.device
            and self.agreed_bytes(call) == self.agreed_bytes(other)
        )

    def misfit(self, calls: Mapping[int, Call]) -> str | None:
        """Return an error sentence if calls (by group rank) that `agree` still do not fit together, else None."""
        return None

    def payload(self, call: Call, issue: Issue) -> Payload:
        """Copy a member's inputs and poison its outputs, in the form that `fill` takes."""
        input, output = issue.input, issue.output
        return take(() if input is None else (input,), () if output is None else (output,))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        """Fill the outputs of the member that made `call` from the other members' inputs."""
        raise AssertionError(f"{self.name} fills its outputs")


# By name; real ranks send each other an operation's position in this dict.
COLLECTIVES: dict[str, Collective] = {}


def refused_call(issue: Issue, mistake: BaseException) -> Call:
    """Return the call of a rank whose arguments were refused, to report the mistake to the other members."""
    return Call(op=issue.op, group=issue.group, rank=issue.rank, mistake=str(mistake) or type(mistake).__name__)


def disagreement(calls: Mapping[int, Call]) -> str | None:
    """Return an error sentence if the members' calls (by group rank) do not fit together, else None.

    Equal calls give an equal sentence, on any rank and in any order of arrival.
    """
    for member in sorted(calls):
        if calls[member].mistake:
            return calls[member].mistake
    first = calls[min(calls)]
    collective = COLLECTIVES[first.op]
    for member in sorted(calls):
        if not collective.agree(first, calls[member]):
            return f"group {first.group.name}: {_describe(first)}, but {_describe(calls[member])}"
    return collective.misfit(calls)


def deliver(call: Call, payloads: Payloads) -> None:
    """Fill the outputs of the member that made `call`."""
    outputs = payloads[call.group.index(call.rank)].outputs
    if not any(output.numel() for output in outputs):
        return  # without outputs the call does not wait: others may not have entered yet
    with torch.no_grad():
        COLLECTIVES[call.op].fill(call, outputs, payloads)


def _describe(call: Call) -> str:
    details = [f"{COLLECTIVES[call.op].agreed_bytes(call) or call.bytes_in} bytes", call.dtype]
    details += [call.device] if call.device == "meta" else []
    details += [call.reduce] if call.reduce else []
    details += [f"root {call.group.ranks[call.root]}"] if call.root >= 0 else []
    return f"rank {call.rank} calls {call.name} ({', '.join(filter(None, details))})"
