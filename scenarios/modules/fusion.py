"""Fuses operators as torch.compile's Inductor does, and finds which results it writes, keeps and recomputes.

Products, attention, convolutions and other operators of libraries are kernels of their own. Elementwise operators and
copies between them absorb each other, sums over whole rows, and what reads these sums; a sum over everything is
complete only at the end of its kernel. Sums over columns, such as gradients of biases and of a norm's weights, are
kernels of their own, as other threads sum. Tensors that only the fused operators use are neither written nor read. A
batch norm needs all of its input, twice.

A compiler writes results of elementwise operators and reductions only where a product (or attention, a convolution, any
other operator of a library) or code after the next product reads them. Autograd keeps some of the others for the
backward pass; a compiler recomputes them there, from results of products and from inputs, if keeping those takes less
memory. AOTAutograd's min-cut partitioner decides this; here it is decided for the operators between two products at a
time. `cross_entropy` under autocast then keeps the logits in bfloat16, instead of their logarithms in bfloat16 and in
float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from scenarios.modules.recorder import Operator
from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.attention import Attention
from scenarios.seam.operations.convolution import Convolution
from scenarios.seam.operations.normalisations import BatchNorm, NllLoss, RowNorm, Softmax
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import FULL_ALIGNMENT, Product, Recurrence
from scenarios.seam.operations.reductions import Reduction

# How a step's operators are fused: not at all, as by torch.compile, or with what follows products in their kernels.
Fusion = Literal["", "compiled", "epilogues"]

_POINTWISE = frozenset({"elementwise", "optimizer"})
_PRODUCTS = frozenset({"gemm", "convolution"})
# Operators of kind "permute" that keep their own kernel: those that read or write rows by index, and FSDP2's.
_BY_INDEX = frozenset(
    {
        *("index", "_unsafe_index", "index_select", "gather", "take", "masked_scatter", "repeat_interleave"),
        *("im2col", "col2im", "all_gather_copy_in", "chunk_cat", "_chunk_cat"),
    }
)
# Operators whose gradients need neither operands nor results.
_PASSES_ON = frozenset({"_to_copy", "clone", "copy_", "_foreach_copy_", "add", "add_", "sub", "sub_", "neg", "cat"})
# Operators that draw random numbers: their results are kept, not recomputed.
_RANDOM = ("dropout", "bernoulli", "rand", "normal_", "uniform_")


@dataclass(slots=True)
class _Group:
    """A set of operators that become one kernel; `rows`: of its sums over whole rows, 0 if it has none."""

    operators: list[Operator] = field(default_factory=list)
    rows: int = 0
    is_open: bool = False
    is_product: bool = False

    def takes(self, rows: int | None) -> bool:
        """Return whether an operator joins: with sums over so many rows, 0: no sums, or None: over anything else."""
        if self.is_product:
            return not rows
        return self.is_open and (rows == 0 or not self.rows or rows == self.rows)


def fuse_operators(operators: Sequence[Operator], *, epilogues: bool = False) -> list[Kernel]:
    """Return the kernels that result from fusing the operators, which are in their order; as `fusing_groups`."""
    return [kernel for group in fusing_groups(operators, epilogues=epilogues) for kernel in fused_kernels(group)]


def fusing_groups(operators: Sequence[Operator], *, epilogues: bool = False) -> list[list[Operator]]:
    """Return the operators, which are in their order, in groups that become one kernel each.

    With `epilogues`, a product's kernel also contains the elementwise operators on its result.
    """
    groups: list[_Group] = []
    writer: dict[int, int] = {}  # tensor -> the group that wrote it last
    user: dict[int, int] = {}  # tensor -> the last group that read or wrote it
    summed: set[int] = set()  # results of sums that are complete only at the end of their kernel
    for operator in operators:
        can_fuse = fuses(operator) and not _holds(operator, BatchNorm)
        if not epilogues and any(map(_is_sum_of_columns, operator.kernel.operations)):
            can_fuse = False
        rows = _summed_rows(operator) if can_fuse else 0
        place = _place(operator, rows, groups, writer, user, summed) if can_fuse else len(groups)
        if place == len(groups):
            is_product = epilogues and operator.kernel.kind in _PRODUCTS
            groups.append(_Group(is_product=is_product, is_open=is_product or (can_fuse and rows is not None)))
        groups[place].operators.append(operator)
        groups[place].rows = groups[place].rows or rows or 0
        for tensor in operator.writes:
            writer[tensor] = place
            (summed.add if rows is None else summed.discard)(tensor)
        for tensor in (*operator.reads, *operator.writes):
            # An operator may join a group before the last user's, so the latest use is kept.
            user[tensor] = max(place, user.get(tensor, place))
    return [group.operators for group in groups]


def fuses(operator: Operator) -> bool:
    """Return whether a compiler makes the operator's code; else a library runs it."""
    kind = operator.kernel.kind
    return kind in _POINTWISE or kind == "reduction" or (kind == "permute" and operator.name not in _BY_INDEX)


def _summed_rows(operator: Operator) -> int | None:
    """Return over how many rows an operator sums; 0: it does not sum; None: it sums over something else."""
    if operator.kernel.kind != "reduction":
        return 0
    for each in operator.kernel.operations:
        if isinstance(each, NllLoss) and each.backward:
            return 0
        if isinstance(each, (RowNorm, Softmax, NllLoss)):
            return each.rows
        if isinstance(each, Reduction) and each.inner == 1 and each.outer > 1:
            return each.outer
    return None


def _is_sum_of_columns(operation: Operation) -> bool:
    return isinstance(operation, Reduction) and operation.inner > 1


def _place(
    operator: Operator,
    rows: int | None,
    groups: Sequence[_Group],
    writer: Mapping[int, int],
    user: Mapping[int, int],
    summed: set[int],
) -> int:
    """Return the group that an operator joins, or the number of groups for a new one.

    An operator joins the last group that writes one of its inputs, as all its other inputs exist by then; or a later
    group that reads one of them. No later group may have used the tensors that it changes in place.
    """
    producer = max((writer.get(tensor, -1) for tensor in operator.reads), default=-1)
    reader = max((user.get(tensor, -1) for tensor in operator.reads), default=-1)
    has_sums = any(tensor in summed for tensor in operator.reads)
    for place in (producer, reader):
        is_there = place > producer or (place == producer and not has_sums)
        if place < 0 or not is_there or not groups[place].takes(rows):
            continue
        if groups[place].is_product and all(writer.get(tensor) != place for tensor in operator.reads):
            continue
        if all(user.get(tensor, -1) <= place for tensor in operator.writes):
            return place
    return len(groups)


def recompute(forward: Sequence[Operator], backward: Sequence[Operator], outputs: set[int]) -> tuple[Operator, ...]:
    """Return the backward operators of a recording, as they read what a compiler keeps for them.

    The forward operators no longer write what is recomputed. `outputs` are the tensors that the forward pass returns.
    """
    found = FusedRuns(forward).recomputed({tensor for each in backward for tensor in each.reads}, outputs)
    for tensor in found:
        uses, freed = forward[0].uses, forward[0].freed  # those of the whole recording
        freed.add(tensor)
        uses[tensor] = [each for each in uses[tensor] if each.number < len(forward)]
    return tuple(_reads_instead(each, found) for each in backward)


def _reads_instead(operator: Operator, found: Mapping[int, Mapping[int, int]]) -> Operator:
    """Return an operator that reads, of recomputed tensors, what these are recomputed from."""
    if not operator.reads.keys() & found.keys():
        return operator
    reads: dict[int, int] = {}
    for tensor, size in operator.reads.items():
        for each, bytes_read in found.get(tensor, {tensor: size}).items():
            reads[each] = max(bytes_read, reads.get(each, 0))
            if tensor in found:
                operator.uses.setdefault(each, []).append(operator)
    return replace(operator, reads=reads)


def _holds(operator: Operator, *kinds: type[Operation]) -> bool:
    return any(isinstance(each, kinds) for each in operator.kernel.operations)


def fused_kernels(operators: Sequence[Operator]) -> list[Kernel]:
    """Return a group as one kernel, and one more for each norm in it whose weights get gradients."""
    sums = []
    for each in operators:
        for norm in each.kernel.operations:
            if isinstance(norm, RowNorm) and norm.backward and norm.weights:
                # The gradient and the input are read again; bytes count them once, as those of eager norms do.
                summed = Reduction(name="sum", dtype=norm.dtype, outer=1, reduced=2 * norm.rows, inner=norm.dim)
                sums.append(Kernel(kind="reduction", dtype=norm.dtype, operations=(summed,)))
    return [_fused_kernel(operators), *sums]


def _fused_kernel(operators: Sequence[Operator]) -> Kernel:
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
    return isinstance(operation, (Product, Attention, Convolution, BatchNorm)) or _is_sum_of_columns(operation)


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


@dataclass(frozen=True, slots=True)
class _Maker:
    """The operator that makes a tensor, with the number of its run; None: a library's operator."""

    operator: Operator
    run: int | None


class FusedRuns:
    """Operators cut into runs that a compiler fuses, each between two operators of libraries.

    Attributes:
        within: numbers of the tensors that one run makes and no other run reads.
    """

    def __init__(self, operators: Sequence[Operator]) -> None:
        self._makers: dict[int, _Maker] = {}
        self._readers: dict[int, list[Operator]] = {}
        self._sizes: dict[int, int] = {}
        written, last = set[int](), 0
        for operator in operators:
            is_fused = fuses(operator)
            last += not is_fused
            run = last if is_fused else None
            written.update(tensor for tensor in operator.reads if run is None or self.run_of(tensor) != run)
            for tensor, size in (*operator.reads.items(), *operator.writes.items()):
                self._sizes[tensor] = max(size, self._sizes.get(tensor, 0))
            for tensor in operator.reads:
                self._readers.setdefault(tensor, []).append(operator)
            for tensor in operator.writes:
                if run is None or tensor in self._makers or tensor in operator.reads:
                    # A library's result, or one changed in place: neither can stay within a fused kernel.
                    written.add(tensor)
                self._makers.setdefault(tensor, _Maker(operator, run))
        self.within = self._makers.keys() - written

    def run_of(self, tensor: int | None) -> int | None:
        """Return the run that makes a tensor; None if a library makes it, or no operator here."""
        maker = None if tensor is None else self._makers.get(tensor)
        return None if maker is None else maker.run

    def recomputed(self, alive: set[int], outputs: set[int]) -> dict[int, dict[int, int]]:
        """Return the tensors that the backward pass recomputes: for each, what it reads for this, with the bytes.

        `alive` tensors exist at the end of the forward pass, which returns `outputs`.
        """
        found: dict[int, dict[int, int]] = {}
        kept: dict[int | None, list[int]] = {}
        for tensor in sorted((alive & self.within) - outputs):
            if not self._is_random(tensor):
                kept.setdefault(self.run_of(tensor), []).append(tensor)
        for tensors in kept.values():
            roots = {tensor: {root: self._sizes[root] for root in self._roots(tensor, alive)} for tensor in tensors}
            added = {root: size for each in roots.values() for root, size in each.items() if root not in alive}
            if sum(added.values()) < sum(self._sizes[tensor] for tensor in tensors):
                found.update(roots)
        return found

    def find_unneeded(self, tensors: set[int]) -> list[int]:
        """Return the tensors that are results of matrix products and that no gradient needs."""
        made = (each for each in sorted(tensors) if each in self._makers)
        return [each for each in made if self._makers[each].operator.kernel.kind == "gemm" and self._is_passed_on(each)]

    def _is_passed_on(self, tensor: int) -> bool:
        """Return whether a tensor is read, and only by operators whose gradients need neither operands nor results."""
        left, seen = [tensor], {tensor}
        while left:
            for reader in self._readers.get(left.pop(), ()):
                if reader.name not in _PASSES_ON:
                    return False
                made = reader.writes.keys() - seen
                seen |= made
                left += made
        return tensor in self._readers

    def _roots(self, tensor: int, alive: set[int]) -> Iterator[int]:
        """Yield the tensors from which a tensor is recomputed: libraries' results, inputs, existing written tensors."""
        run, left, seen = self.run_of(tensor), [tensor], {tensor}
        while left:
            for read in self._makers[left.pop()].operator.reads.keys() - seen:
                seen.add(read)
                is_made_here = self.run_of(read) == run and not self._is_random(read)
                if is_made_here and (read in self.within or read not in alive):
                    left.append(read)
                else:
                    yield read

    def _is_random(self, tensor: int) -> bool:
        return any(each in self._makers[tensor].operator.name for each in _RANDOM)
