"""The change from indexing to `index_select`: its backward pass adds by atomic operations, without a sort.

Autograd's backward of `z[:, i, j]` is an accumulating `index_put_`, which sorts all indices and walks through runs of
equal ones; that of `index_select` is an `index_add_`.
"""

from __future__ import annotations

from collections.abc import Iterator

from scenarios.seam.kernel import Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.rows import IndexPut, ScatterAdd
from sim.rank.observed import ObservedComputation
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes.kernels import Step, places, with_operations


def by_atomics(one: ObservedComputation) -> Kernel:
    """Return the kernel with `index_add_` in place of its accumulating `index_put_`."""
    return with_operations(one.kernel, as_index_add)


def as_index_add(operation: Operation) -> Operation:
    """Return the `index_add_` equivalent to an accumulating `index_put_`; any other operator unchanged."""
    if not isinstance(operation, IndexPut):
        return operation
    return ScatterAdd(
        elements=operation.slices * operation.count * operation.inner,
        dtype=operation.dtype,
        target_elements=operation.target_elements,
    )


def proposals(step: Step) -> Iterator[Counterfactual]:
    """Yield the change if the step accumulates by indices, and the law predicts a gain."""
    if not step.prices.has_laws:
        return
    found = [(label, one, times) for label, one, times in step.operations if isinstance(one, IndexPut)]
    before_ns = step.ns((one, times) for _, one, times in found)
    saved_ns = before_ns - step.ns((as_index_add(one), times) for _, one, times in found)
    if saved_ns > 0:
        where = places(label for label, _, _ in found)
        largest = max((one for _, one, _ in found), key=lambda one: one.slices * one.count * one.inner)
        code = (
            "z.flatten(1).index_select(1, i * n + j) for z[:, i, j]"
            if largest.slices > 1
            else "x.index_select(0, i) for x[i]"
        )
        yield Counterfactual(
            name="index_select in place of indexing",
            group="setting",
            replays=True,
            rewrite=by_atomics,
            made_by=f"{code} in {where}, whose backward takes {before_ns / 1e6:.2f} ms",
            saves_at_most_ns=saved_ns,
        )
