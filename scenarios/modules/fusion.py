"""Fuses operators as a compiler would: elementwise ones with the operators that they follow, as in torch.compile.

A product absorbs elementwise operators on its result, such as bias and activation; elementwise operators absorb each
other, and sums over their results. Tensors that only the fused operators use are neither written nor read. A norm or
softmax needs whole rows of its input, so it reads the result of a product from memory; a batch norm needs all of its
input, twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from scenarios.modules.recorder import Operator
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.normalisations import BatchNorm, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import FULL_ALIGNMENT, Product, Recurrence

_LEADS = frozenset({"gemm", "convolution", "elementwise", "optimizer"})
POINTWISE = frozenset({"elementwise", "optimizer"})
# Operators of other kinds that work element by element.
COPIES = frozenset({"_to_copy", "clone", "copy_", "_foreach_copy_"})


@dataclass(slots=True)
class _Group:
    """A set of operators that become one kernel."""

    operators: list[Operator] = field(default_factory=list)

    @property
    def takes(self) -> bool:
        return self.operators[0].kernel.kind in _LEADS or self.operators[0].name in COPIES


def fuse_operators(operators: Sequence[Operator]) -> list[Kernel]:
    """Return the kernels that result from fusing the operators, which are in their order."""
    return [fused_kernel(group) for group in fusing_groups(operators)]


def fusing_groups(operators: Sequence[Operator]) -> list[list[Operator]]:
    """Return the operators, which are in their order, in groups that become one kernel each."""
    groups: list[_Group] = []
    writer: dict[int, int] = {}  # tensor -> the group that wrote it last
    user: dict[int, int] = {}  # tensor -> the last group that read or wrote it
    summed: set[int] = set()
    for operator in operators:
        place = _place(operator, groups, writer, user, summed)
        if place == len(groups):
            groups.append(_Group())
        groups[place].operators.append(operator)
        for tensor in operator.writes:
            writer[tensor] = place
            (summed.add if operator.kernel.kind == "reduction" else summed.discard)(tensor)
        for tensor in (*operator.reads, *operator.writes):
            # An operator may join a group before the last user's, so the latest use is kept.
            user[tensor] = max(place, user.get(tensor, place))
    return [group.operators for group in groups]


def _place(
    operator: Operator, groups: Sequence[_Group], writer: dict[int, int], user: dict[int, int], summed: set[int]
) -> int:
    """Return the group that an operator joins, or the number of groups for a new one.

    An operator joins the last group that writes one of its inputs, as all its other inputs exist by then; or a later
    group that reads one of them. No later group may have used the tensors that it changes in place.
    """
    kind = operator.kernel.kind
    if kind not in POINTWISE and kind != "reduction" and operator.name not in COPIES:
        return len(groups)
    if _holds(operator, BatchNorm):
        return len(groups)
    is_norm = _holds(operator, RowNorm, Softmax)
    producer = max((writer.get(tensor, -1) for tensor in operator.reads), default=-1)
    reader = max((user.get(tensor, -1) for tensor in operator.reads), default=-1)
    # A sum is complete only at the end of its kernel, so its readers start another one.
    has_sums = any(tensor in summed for tensor in operator.reads)
    for place in (producer, reader):
        is_there = place > producer or (place == producer and not has_sums)
        if place < 0 or not is_there or not groups[place].takes:
            continue
        if is_norm and groups[place].operators[0].kernel.kind not in POINTWISE:
            continue
        is_made_here = any(writer.get(tensor) == place for tensor in operator.reads)
        if not is_made_here and groups[place].operators[0].kernel.kind not in POINTWISE:
            continue
        if all(user.get(tensor, -1) <= place for tensor in operator.writes):
            return place
    return len(groups)


def _holds(operator: Operator, *kinds: type[Operation]) -> bool:
    return any(isinstance(each, kinds) for each in operator.kernel.operations)


def fused_kernel(operators: Sequence[Operator]) -> Kernel:
    """Return a group as one kernel, which reads outside inputs once and writes results that others need once."""
    lead = operators[0].kernel
    operations = tuple(map(_pad, filter(_is_library_call, lead.operations)))
    if _holds(operators[0], Recurrence):  # all of it is cuDNN's
        operations = lead.operations
    if len(operators) == 1:
        return replace(lead, operations=operations)
    inside = {operator.number for operator in operators}
    read = dict(_read(operators))
    written = {
        tensor: size
        for operator in operators
        for tensor, size in operator.writes.items()
        if tensor not in operator.freed
        or any(each.number > operator.number and each.number not in inside for each in operator.uses.get(tensor, ()))
    }
    return Kernel(
        kind=lead.kind,
        flops=sum(operator.kernel.flops for operator in operators),
        bytes_read=float(sum(read.values())),
        bytes_written=float(sum(written.values())),
        dtype=lead.dtype,
        recomputed_flops=sum(operator.kernel.recomputed_flops for operator in operators),
        operations=operations,
    )


def _is_library_call(operation: Operation) -> bool:
    """Return whether an operator keeps its law in a compiled step: a library runs it, or its memory passes stay."""
    return isinstance(operation, (Product, Attention, Convolution, BatchNorm))


def _pad(operation: Operation) -> Operation:
    """Return a product whose operands are padded to 16 bytes per row, as torch.compile does where that is faster."""
    if not isinstance(operation, Product):
        return operation
    sides = dict.fromkeys(("left_alignment", "right_alignment", "result_alignment"), FULL_ALIGNMENT)
    return replace(operation, **sides)  # type: ignore[arg-type]


def _read(operators: Sequence[Operator]) -> Iterator[tuple[int, int]]:
    written: set[int] = set()
    for operator in operators:
        yield from ((tensor, size) for tensor, size in operator.reads.items() if tensor not in written)
        written.update(operator.writes)
