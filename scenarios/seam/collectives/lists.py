"""All-gather and reduce-scatter with a list of one tensor per member; sizes may differ between members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from scenarios.seam.arguments import (
    Issue,
    check_list,
    check_output,
    check_reduce,
    check_same_kind,
    check_tensor,
    size_bytes,
)
from scenarios.seam.calls import Call
from scenarios.seam.collectives.coalesced import InParts, layout_of
from scenarios.seam.errors import CollectiveError, ProgramError
from scenarios.seam.payload import Payload, Payloads, copy_bytes, take


class _AllGatherInParts(InParts):
    """A collective that gives each member all members' inputs, each in its own tensor."""

    gives = "take"

    def check(self, issue: Issue) -> Call:
        outputs = check_list(issue, "tensor_list", issue.output, check_output)
        input = check_tensor(issue, "tensor", issue.input)
        check_same_kind(issue, [*outputs, input])
        size = size_bytes(input)
        return Call.of(
            issue, input, bytes_in=size, bytes_sent=size, **_sizes(issue, "tensor_list", outputs, input, "bytes_out")
        )

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take((issue.input,), issue.output)

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        for source, output in enumerate(outputs):
            copy_bytes(output, payloads[source].inputs[0])


class _ReduceScatterInParts(InParts):
    """A collective that gives each member the sum of all members' tensors for it."""

    def check(self, issue: Issue) -> Call:
        inputs = check_list(issue, "input_list", issue.input)
        output = check_output(issue, "output", issue.output)
        check_same_kind(issue, [output, *inputs])
        reduce, sizes = (
            check_reduce(issue, issue.reduce, output),
            _sizes(issue, "input_list", inputs, output, "bytes_in"),
        )
        sent = sizes["bytes_in"]
        return Call.of(issue, output, bytes_out=size_bytes(output), bytes_sent=sent, reduce=reduce, **sizes)

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take(issue.input, (issue.output,))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        total = payloads.total(call, call.group.index(call.rank))
        outputs[0].view(-1).copy_(total.view(-1))


def _sizes(issue: Issue, name: str, listed: Sequence[Tensor], own: Tensor, whole: str) -> dict[str, Any]:
    """Return the fields of a call for the sizes of the listed tensors; `parts` only if these differ.

    Raises:
        CollectiveError: this rank's listed tensor differs in size from `own`.
        ProgramError: sizes differ in a group whose members represent several ranks.
    """
    group, sizes, size = issue.group, tuple(map(size_bytes, listed)), size_bytes(own)
    is_even = sizes.count(sizes[0]) == len(sizes)
    if group.counts and not is_even:
        raise ProgramError(f"{issue}: {name} of tensors of several sizes: expected run.ranks = 'each'")
    place = 0 if group.counts else group.index(issue.rank)
    if sizes[place] != size:
        raise CollectiveError(
            f"{issue}: {name}[{place}], this rank's own, has {sizes[place]} bytes, expected {size} as its tensor"
        )
    return {whole: sum(sizes), "parts": () if is_even else sizes, "layout": layout_of(sizes)}


ALL_GATHER = _AllGatherInParts("all_gather")
REDUCE_SCATTER = _ReduceScatterInParts("reduce_scatter")
