"""Collectives over several tensors of one dtype, launched as one call; all members have the same sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from zlib import crc32

import torch
from torch import Tensor

from scenarios.seam.arguments import (
    Issue,
    check_output,
    check_reduce,
    check_same_kind,
    check_target,
    check_tensors,
    size_bytes,
)
from scenarios.seam.calls import Call
from scenarios.seam.collectives.collective import Collective
from scenarios.seam.errors import CollectiveError
from scenarios.seam.payload import NO_PAYLOAD, Payload, Payloads, as_bytes, copy_bytes, poison, take


def layout_of(sizes: Sequence[int]) -> int:
    """Return a checksum of the tensors' sizes, by which members check that theirs are equal."""
    return crc32(repr(tuple(sizes)).encode())


class InParts(Collective):
    """A collective over several tensors whose sizes are equal on all members; `gives` is the verb in error messages."""

    gives = "give"

    def agreed_bytes(self, call: Call) -> int:
        return max(call.bytes_in, call.bytes_out)

    def misfit(self, calls: Mapping[int, Call]) -> str | None:
        first = calls[min(calls)]
        for member in sorted(calls):
            other = calls[member]
            if other.layout != first.layout:
                return (
                    f"group {first.group.name}: {first.name}: rank {first.rank} and rank {other.rank} {self.gives}"
                    f" {self.agreed_bytes(first)} bytes each, in tensors of other sizes"
                )
        return None

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take(issue.input, issue.output)


class _AllReduceCoalesced(InParts):
    """A collective that reduces each tensor in place."""

    def check(self, issue: Issue) -> Call:
        tensors = check_tensors(issue, "tensors", issue.output, check_target)
        check_same_kind(issue, tensors)
        return _parts_call(issue, tensors, tensors, tensors, check_reduce(issue, issue.reduce, tensors[0]))

    def payload(self, call: Call, issue: Issue) -> Payload:
        if issue.output[0].is_meta:
            return NO_PAYLOAD
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in issue.output])
        for tensor in issue.output:
            poison(tensor)
        return Payload((flat,), tuple(issue.output))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        pieces = payloads.total(call).split_with_sizes([output.numel() for output in outputs])
        for output, piece in zip(outputs, pieces, strict=True):
            output.view(-1).copy_(piece)


class _ReduceScatterCoalesced(InParts):
    """A collective that gives each member its share of each reduced input."""

    def check(self, issue: Issue) -> Call:
        outputs = check_tensors(issue, "output_tensors", issue.output, check_output)
        inputs = check_tensors(issue, "input_tensors", issue.input)
        _check_shares(issue, outputs, inputs, times=1, parts=issue.group.size)
        return _parts_call(issue, inputs, outputs, inputs, check_reduce(issue, issue.reduce, inputs[0]))

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        member = call.group.index(call.rank)
        for part, output in enumerate(outputs):
            output.view(-1).copy_(payloads.total(call, part).view(len(payloads), -1)[member])


class _AllGatherCoalesced(InParts):
    """A collective that gives each member all members' inputs: one tensor per input, in group order."""

    gives = "take"

    def check(self, issue: Issue) -> Call:
        outputs = check_tensors(issue, "output_tensors", issue.output, check_output)
        inputs = check_tensors(issue, "input_tensors", issue.input)
        _check_shares(issue, outputs, inputs, times=issue.group.size, parts=1)
        return _parts_call(issue, inputs, outputs, outputs)

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        for part, output in enumerate(outputs):
            for source, row in enumerate(as_bytes(output).view(len(payloads), -1)):
                row.copy_(as_bytes(payloads[source].inputs[part]))


class _AllGatherListsCoalesced(InParts):
    """A collective that gives each member all members' inputs: a list of tensors for each member."""

    gives = "take"

    def check(self, issue: Issue) -> Call:
        inputs, size = check_tensors(issue, "input_tensor_list", issue.input), issue.group.size
        if not isinstance(issue.output, list):
            kind = type(issue.output).__name__
            raise TypeError(f"{issue}: output_tensor_lists must be a list of lists of tensors, got {kind}")
        if len(issue.output) != size:
            given = len(issue.output)
            raise CollectiveError(f"{issue}: output_tensor_lists has {given} lists, expected the group's size {size}")
        sizes = [size_bytes(tensor) for tensor in inputs]
        for place, listed in enumerate(issue.output):
            name = f"output_tensor_lists[{place}]"
            outputs = check_tensors(issue, name, listed, check_output)
            check_same_kind(issue, [*outputs, *inputs])
            if [size_bytes(tensor) for tensor in outputs] != sizes:
                found = [size_bytes(tensor) for tensor in outputs]
                raise CollectiveError(f"{issue}: {name} has tensors of {found} bytes, expected the inputs' {sizes}")
        made = _parts_call(issue, inputs, [*chain.from_iterable(issue.output)], inputs)
        return replace(made, parts=())  # libraries gather them as one buffer

    def payload(self, call: Call, issue: Issue) -> Payload:
        return take(issue.input, [*chain.from_iterable(issue.output)])

    def fill(self, call: Call, outputs: Sequence[Tensor], payloads: Payloads) -> None:
        for place, output in enumerate(outputs):
            source, part = divmod(place, len(outputs) // len(payloads))
            copy_bytes(output, payloads[source].inputs[part])


def _parts_call(
    issue: Issue, inputs: Sequence[Tensor], outputs: Sequence[Tensor], parts: Sequence[Tensor], reduce: str = ""
) -> Call:
    """Return the call of several tensors as one; `parts` are the tensors whose sizes decide the library's messages."""
    given, sizes = sum(map(size_bytes, inputs)), tuple(map(size_bytes, parts))
    return Call.of(
        issue,
        inputs[0],
        bytes_in=given,
        bytes_out=sum(map(size_bytes, outputs)),
        bytes_sent=given,
        parts=sizes,
        layout=layout_of(sizes),
        reduce=reduce,
    )


def _check_shares(issue: Issue, outputs: Sequence[Tensor], inputs: Sequence[Tensor], *, times: int, parts: int) -> None:
    """Raise CollectiveError unless each input has an output with `times / parts` of its elements."""
    check_same_kind(issue, [*outputs, *inputs])
    if len(outputs) != len(inputs):
        raise CollectiveError(f"{issue}: {len(outputs)} outputs and {len(inputs)} inputs, expected as many")
    for place, (output, input) in enumerate(zip(outputs, inputs, strict=True)):
        if output.numel() * parts != input.numel() * times:
            raise CollectiveError(
                f"{issue}: output_tensors[{place}] has {output.numel()} elements and input {input.numel()},"
                f" expected {input.numel() * times / parts:g} for a group of {issue.group.size}"
            )


ALL_REDUCE_COALESCED = _AllReduceCoalesced("all_reduce_coalesced")
REDUCE_SCATTER_TENSOR_COALESCED = _ReduceScatterCoalesced("reduce_scatter_tensor_coalesced")
ALL_GATHER_INTO_TENSOR_COALESCED = _AllGatherCoalesced("all_gather_into_tensor_coalesced")
ALL_GATHER_COALESCED = _AllGatherListsCoalesced("all_gather_coalesced")
