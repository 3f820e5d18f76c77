"""The change to pad matrix products whose rows in memory are not aligned to 16 bytes, and so run slower kernels.

All products of a size, forward and backward, get the next greater size that the law prices faster in total. Other
operators keep their sizes, on which a few columns have no effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scenarios.seam.kernel import ELEMENT_BYTES, Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.products import FULL_ALIGNMENT, Product, alignment
from sim.rank.observed import ObservedComputation
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes.kernels import Step, places, with_operations

# Multiples of the alignment that are tried, smallest first.
_MULTIPLES = (1, 2, 4, 8)
# A product with one row or column is of a vector, which has kernels of its own.
_LEAST_SIZE = 2


@dataclass(frozen=True, slots=True)
class Padded:
    """A rewrite of kernels: products of one size get another."""

    size: int
    to: int

    def __call__(self, one: ObservedComputation) -> Kernel:
        """Return the kernel with its products padded."""
        return with_operations(one.kernel, self.operation)

    def operation(self, operation: Operation) -> Operation:
        """Return a product of the size with the other one; any other operator unchanged."""
        if not isinstance(operation, Product) or self.size not in (operation.rows, operation.columns, operation.inner):
            return operation
        each = _element_bytes(operation)
        left, right, result = _contiguous(operation)
        return replace(
            operation,
            rows=self._pad(operation.rows),
            columns=self._pad(operation.columns),
            inner=self._pad(operation.inner),
            left_alignment=self._alignment(left, each, operation.left_alignment),
            right_alignment=self._alignment(right, each, operation.right_alignment),
            result_alignment=self._alignment(result, each, operation.result_alignment),
        )

    def _pad(self, size: int) -> int:
        return self.to if size == self.size else size

    def _alignment(self, contiguous: int, element_bytes: int, before: int) -> int:
        return alignment(self.to, element_bytes) if contiguous == self.size else before


def proposals(step: Step) -> Iterator[Counterfactual]:
    """Yield a padding for each unaligned size of the step's products, where the law predicts a gain."""
    if not step.prices.has_laws:
        return
    of_size: dict[int, list[tuple[str, Product, int]]] = defaultdict(list)
    for label, operation, times in step.operations:
        if isinstance(operation, Product):
            for size in _unaligned_sizes(operation):
                of_size[size].append((label, operation, times))
    for size, products in of_size.items():
        least = max(FULL_ALIGNMENT // _element_bytes(product) for _, product, _ in products)
        sizes = dict.fromkeys(-(-size // (least * many)) * least * many for many in _MULTIPLES)
        paddings = (Padded(size, to) for to in sizes)
        found = next(((one, saved) for one in paddings if (saved := _saved_ns(step, one)) > 0), None)
        if found is not None:
            yield _proposal(*found, products)


def _saved_ns(step: Step, padded: Padded) -> float:
    """Return the ns that padding saves in a step's kernels; negative if they take longer."""
    changed = [
        (operation, other, times)
        for _, operation, times in step.operations
        if (other := padded.operation(operation)) is not operation
    ]
    return step.ns((old, times) for old, _, times in changed) - step.ns((new, times) for _, new, times in changed)


def _proposal(padded: Padded, saved_ns: float, products: list[tuple[str, Product, int]]) -> Counterfactual:
    shape = max((product for _, product, _ in products), key=lambda product: product.flops)
    batch = f"{shape.batch} of " if shape.batch > 1 else ""
    return Counterfactual(
        name=f"products of {padded.size} padded to {padded.to}",
        group="setting",
        replays=True,
        rewrite=padded,
        made_by=f"pad with zeros in {places(label for label, _, _ in products)}"
        f" ({batch}{shape.rows} x {shape.inner} x {shape.columns})",
        saves_at_most_ns=saved_ns,
    )


def _contiguous(product: Product) -> tuple[int, int, int]:
    """Return the sizes along which the left and the right operand and the result are contiguous in memory."""
    left = product.rows if product.left_is_transposed else product.inner
    right = product.inner if product.right_is_transposed else product.columns
    return left, right, product.columns


def _unaligned_sizes(product: Product) -> set[int]:
    """Return the sizes that keep an operand or the result from being aligned."""
    each = _element_bytes(product)
    aligned = (product.left_alignment, product.right_alignment, product.result_alignment)
    return {
        size
        for size, known in zip(_contiguous(product), aligned, strict=True)
        if size >= _LEAST_SIZE and known < FULL_ALIGNMENT and alignment(size, each) < FULL_ALIGNMENT
    }


def _element_bytes(product: Product) -> int:
    return ELEMENT_BYTES.get(product.dtype, 4)
