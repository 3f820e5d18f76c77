"""All-reduce, reduce-scatter and all-gather of one tensor, of which every member gives equally many bytes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from scenarios.seam.arguments import (
    Issue,
    check_output,
    check_reduce,
    check_same_kind,
    check_target,
    check_tensor,
    size_bytes,
)
from scenarios.seam.calls import Call
from scenarios.seam.collectives.collective import Collective
from scenarios.seam.errors import CollectiveError
from scenarios.seam.payload import Payloads, as_bytes


class _Equal(Collective):
    """A collective to which every member gives equally many bytes."""

    def agreed_bytes(self, call: Call) -> int:
        return call.bytes_in


class _AllReduce(_Equal):
    """A collective that reduces a tensor in place."""

    def check(self, issue: Issue) -> Call:
        tensor = check_target(issue, "tensor", issue.output)
        return _equal_call(issue, check_reduce(issue, issue.reduce, tensor))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        outputs[0].copy_(payloads.total(call))


class _ReduceScatter(_Equal):
    """A collective that gives each member its share of the reduced input."""

    def check(self, issue: Issue) -> Call:
        _check_two(issue)
        _check_share(issue, 1, issue.group.size)
        return _equal_call(issue, check_reduce(issue, issue.reduce, issue.input))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        member = call.group.index(call.rank)
        outputs[0].view(-1).copy_(payloads.total(call).view(len(payloads), -1)[member])


class _AllGather(_Equal):
    """A collective that gives each member all members' inputs, concatenated in group order."""

    def check(self, issue: Issue) -> Call:
        _check_two(issue)
        _check_share(issue, issue.group.size, 1)
        return _equal_call(issue, "")

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        for source, row in enumerate(as_bytes(outputs[0]).view(len(payloads), -1)):
            row.copy_(as_bytes(payloads[source].inputs[0]))


def _equal_call(issue: Issue, reduce: str) -> Call:
    size = size_bytes(issue.input)
    return Call.of(
        issue, issue.input, bytes_in=size, bytes_out=size_bytes(issue.output), bytes_sent=size, reduce=reduce
    )


def _check_two(issue: Issue) -> None:
    check_output(issue, "output", issue.output)
    check_tensor(issue, "input", issue.input)
    check_same_kind(issue, (issue.output, issue.input))


def _check_share(issue: Issue, times: int, parts: int) -> None:
    """Raise CollectiveError unless the output has `times / parts` as many elements as the input."""
    output, input = issue.output.numel(), issue.input.numel()
    if output * parts != input * times:
        raise CollectiveError(
            f"{issue}: output has {output} elements and input {input},"
            f" expected {input * times / parts:g} for a group of {issue.group.size}"
        )


ALL_REDUCE = _AllReduce("all_reduce")
REDUCE_SCATTER_TENSOR = _ReduceScatter("reduce_scatter_tensor")
ALL_GATHER_INTO_TENSOR = _AllGather("all_gather_into_tensor")
