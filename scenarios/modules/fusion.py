"""Puts operators together that a compiler would: elementwise ones with what they follow, as torch.compile does.

A product takes what is done to each element of its result, bias and activation say; elementwise operators take each
other, and the sums over what they give. What only they themselves use is neither written nor read. A norm or softmax
needs whole rows of its input, so it reads what a product has written; a batch norm needs all of it, twice.
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
from scenarios.seam.operations.products import FULL_ALIGNMENT, Product

_LEADS = frozenset({"gemm", "convolution", "elementwise", "optimizer"})
POINTWISE = frozenset({"elementwise", "optimizer"})
# Of other kinds, but element by element all the same.
COPIES = frozenset({"_to_copy", "clone", "copy_", "_foreach_copy_"})


@dataclass(slots=True)
class _Group:
    """Operators that become one kernel."""

    operators: list[Operator] = field(default_factory=list)

    @property
    def takes(self) -> bool:
        return self.operators[0].kernel.kind in _LEADS or self.operators[0].name in COPIES


def fused(operators: Sequence[Operator]) -> list[Kernel]:
    """The kernels that these operators, in their order, become."""
    groups: list[_Group] = []
    writer: dict[int, int] = {}  # of a tensor: the group that wrote it last
    user: dict[int, int] = {}  # and the last one that used it at all
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
            user[tensor] = max(place, user.get(tensor, place))
    return [_kernel(group.operators) for group in groups]


def _place(
    operator: Operator, groups: Sequence[_Group], writer: dict[int, int], user: dict[int, int], summed: set[int]
) -> int:
    """The group that an operator joins, or one more than there are.

    It is the last one that gives it something, as all else that it reads is there before; or a later one that reads
    the same. What it changes in place, nobody may have used since.
    """
    kind = operator.kernel.kind
    if kind not in POINTWISE and kind != "reduction" and operator.name not in COPIES:
        return len(groups)
    if _holds(operator, BatchNorm):
        return len(groups)
    is_norm = _holds(operator, RowNorm, Softmax)
    given = max((writer.get(tensor, -1) for tensor in operator.reads), default=-1)
    beside = max((user.get(tensor, -1) for tensor in operator.reads), default=-1)
    has_sums = any(tensor in summed for tensor in operator.reads)
    for place in (given, beside):
        is_there = place > given or (place == given and not has_sums)
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


def _kernel(operators: Sequence[Operator]) -> Kernel:
    """Return all of a group as one kernel: what comes from outside is read once, and what somebody else needs is
    written once.
    """
    lead = operators[0].kernel
    operations = tuple(map(_padded, filter(_is_library_call, lead.operations)))
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
    """Return whether a compiled step has an operator's law: a library runs it, or it passes as often over memory as
    torch's own kernel does.
    """
    return isinstance(operation, (Product, Attention, Convolution, BatchNorm))


def _padded(operation: Operation) -> Operation:
    """Return a product whose operands are padded to 16 bytes a row, as torch.compile does where that is quicker."""
    if not isinstance(operation, Product):
        return operation
    sides = dict.fromkeys(("left_alignment", "right_alignment", "result_alignment"), FULL_ALIGNMENT)
    return replace(operation, **sides)  # type: ignore[arg-type]


def _read(operators: Sequence[Operator]) -> Iterator[tuple[int, int]]:
    made: set[int] = set()
    for operator in operators:
        yield from ((tensor, size) for tensor, size in operator.reads.items() if tensor not in made)
        made.update(operator.writes)
