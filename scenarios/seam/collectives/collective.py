"""What all operations have in common: checks, agreement of the members, and payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from scenarios.seam.arguments import Issue
from scenarios.seam.calls import Call
from scenarios.seam.group import Group
from scenarios.seam.payload import Payload, Payloads, take


class Collective:
    """One operation; subclasses say what differs. `name` is the verb's, and unique.

    `has_pairs`: its members meet two by two, not all at once; `has_splits`: they give other bytes to each.
    """

    has_pairs = has_splits = False

    def __init__(self, name: str) -> None:
        self.name = name
        COLLECTIVES[name] = self

    def check(self, issue: Issue) -> Call:
        """Check the arguments of an issued verb and make this rank's call of them.

        Raises:
            TypeError, ValueError, CollectiveError: the arguments are wrong by themselves.
        """
        raise AssertionError(f"{self.name} checks its arguments")

    def pair(self, issue: Issue) -> Group | None:
        """The group of two in which a message meets, source first; None if there is nobody to meet."""
        raise AssertionError(f"{self.name} is no message between two")

    def agreed_bytes(self, call: Call) -> int:
        """Bytes that are the same on all members; 0 where they need not be."""
        return 0

    def agree(self, call: Call, other: Call) -> bool:
        """Whether two members' calls agree in all that must be the same."""
        return (
            call.op == other.op
            and call.root == other.root
            and call.reduce == other.reduce
            and call.dtype == other.dtype
            and call.device == other.device
            and self.agreed_bytes(call) == self.agreed_bytes(other)
        )

    def misfit(self, calls: Mapping[int, Call]) -> str | None:
        """One sentence when calls that `agree`, by group rank, do not fit together all the same, else None."""
        return None

    def payload(self, call: Call, issue: Issue) -> Payload:
        """Copy the inputs and poison the outputs of a member, as `fill` wants them."""
        input, output = issue.input, issue.output
        return take(() if input is None else (input,), () if output is None else (output,))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        """Fill the outputs of the member that made `call` from the inputs of those that it hears from."""
        raise AssertionError(f"{self.name} fills its outputs")


# By name, in the order in which real ranks number them for each other.
COLLECTIVES: dict[str, Collective] = {}


def refused(issue: Issue, mistake: BaseException) -> Call:
    """The call of a rank whose arguments were refused, for the other members to hear of."""
    return Call(op=issue.op, group=issue.group, rank=issue.rank, mistake=str(mistake) or type(mistake).__name__)


def disagreement(calls: Mapping[int, Call]) -> str | None:
    """One sentence when the members' calls (by group rank) do not fit together, else None.

    The same calls give the same sentence, whoever asks and in whatever order they came.
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
        return  # nothing to wait for: the others may not even have entered
    with torch.no_grad():
        COLLECTIVES[call.op].fill(call, outputs, payloads)


def _describe(call: Call) -> str:
    details = [f"{COLLECTIVES[call.op].agreed_bytes(call) or call.bytes_in} bytes", call.dtype]
    details += [call.device] if call.device == "meta" else []
    details += [call.reduce] if call.reduce else []
    details += [f"root {call.group.ranks[call.root]}"] if call.root >= 0 else []
    return f"rank {call.rank} calls {call.name} ({', '.join(filter(None, details))})"
