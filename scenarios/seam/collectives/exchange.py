"""All-to-all, with one tensor or with lists: each pair of members exchanges its own number of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from scenarios.seam.arguments import (
    Issue,
    check_list,
    check_output,
    check_same_kind,
    check_tensor,
    expected_split_bytes,
    size_bytes,
    split_bytes,
)
from scenarios.seam.calls import Call
from scenarios.seam.collectives.collective import Collective
from scenarios.seam.errors import ProgramError
from scenarios.seam.payload import Payload, Payloads, copy_bytes, take, take_rows


class _Exchange(Collective):
    """An all-to-all, in which each pair's bytes are equal on both sides."""

    has_splits = True

    def misfit(self, calls: Mapping[int, Call]) -> str | None:
        members = sorted(calls)
        return _describe_misfit([calls[member] for member in members], members)

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        member = call.group.index(call.rank)
        for source, output in enumerate(outputs):
            copy_bytes(output, payloads[source].inputs[member])


class _AllToAll(_Exchange):
    """An all-to-all of lists; uneven sizes and complex tensors are allowed."""

    def check(self, issue: Issue) -> Call:
        if issue.group.counts:
            raise ProgramError(f"{issue}: expected run.ranks = 'each', which plays all its ranks")
        outputs = check_list(issue, "output_tensor_list", issue.output, check_output)
        inputs = check_list(issue, "input_tensor_list", issue.input)
        check_same_kind(issue, [*outputs, *inputs])
        return _exchange_call(issue, inputs[0], tuple(map(size_bytes, inputs)), tuple(map(size_bytes, outputs)))

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take(issue.input, issue.output)


class _AllToAllSingle(_Exchange):
    """An all-to-all of rows of one tensor into rows of another."""

    def check(self, issue: Issue) -> Call:
        output, input = issue.output, issue.input
        check_output(issue, "output", output)
        check_tensor(issue, "input", input)
        check_same_kind(issue, (output, input))
        if issue.group.counts:
            return self._expected_call(issue)
        sends = split_bytes(issue, "input", input, issue.splits[1])
        return _exchange_call(issue, input, sends, split_bytes(issue, "output", output, issue.splits[0]))

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take_rows(call, issue.input, issue.output)

    def _expected_call(self, issue: Issue) -> Call:
        """Return the call of a member that represents several ranks, with expected splits per represented rank."""
        group, input, output = issue.group, issue.input, issue.output
        sends = expected_split_bytes(issue, "input", input, issue.splits[1])
        recvs = expected_split_bytes(issue, "output", output, issue.splits[0])
        total = group.total(sends)
        return Call.of(
            issue,
            input,
            bytes_in=round(total),
            bytes_out=round(group.total(recvs)),
            bytes_sent=round(total - sends[group.index(issue.rank)]),
            expected_send=sends,
            expected_recv=recvs,
        )


def _describe_misfit(calls: Sequence[Call], members: Sequence[int]) -> str | None:
    """Return the first two members of which one expects other bytes than the other sends; expected ones by rounding."""
    is_expected = bool(calls[0].expected_send)
    sent = np.array([call.expected_send or call.send_bytes for call in calls])[:, members]
    expected = np.array([call.expected_recv or call.recv_bytes for call in calls])[:, members].T
    misfits = ~np.isclose(sent, expected, atol=0) if is_expected else sent != expected
    for source, target in np.argwhere(misfits)[:1].tolist():
        sender, receiver = calls[source], calls[target]
        form = "g" if is_expected else "d"
        return (
            f"group {sender.group.name}: {sender.name}: rank {sender.rank} sends {sent[source, target]:{form}} bytes to"
            f" rank {receiver.rank}, which expects {expected[source, target]:{form}}"
        )
    return None


def _exchange_call(issue: Issue, example: Tensor, sends: tuple[int, ...], recvs: tuple[int, ...]) -> Call:
    total = sum(sends)
    return Call.of(
        issue,
        example,
        bytes_in=total,
        bytes_out=sum(recvs),
        bytes_sent=total - sends[issue.group.ranks.index(issue.rank)],
        send_bytes=sends,
        recv_bytes=recvs,
    )


ALL_TO_ALL = _AllToAll("all_to_all")
ALL_TO_ALL_SINGLE = _AllToAllSingle("all_to_all_single")
