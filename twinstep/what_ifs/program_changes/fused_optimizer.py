"""The change to a fused optimizer: one pass over parameters, gradients and state, launched by one operator.

Adam, AdamW and SGD have one on GPUs (`fused=True`, torch.optim); by default torch uses `_foreach_*` operators, each of
which reads and writes whole lists of tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from scenarios.seam.host_work import HostWork
from scenarios.seam.kernel import ELEMENT_BYTES, Kernel
from scenarios.seam.operations.operation import Operation
from scenarios.seam.operations.optimizers import Foreach
from scenarios.seam.operations.pointwise import Pointwise
from scenarios.seam.roles import OPTIMIZER
from sim.rank.observed import ObservedComputation
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes.kernels import Step

_FOREACH, _FUSED = "_foreach_", "_fused_"
# The suffix of optimizers' labels in scripts, after their classes.
_OF_SCRIPT = ".step"
_CLASSES = {"Adam": "adam", "AdamW": "adamw", "SGD": "sgd"}
# The operators of Adam's step, in place or not.
_OF_ADAM = frozenset({"lerp", "mul", "addcmul", "sqrt", "div", "add", "addcdiv", "maximum", "copy"})


class _Host(NamedTuple):
    """Counts of a step's host work besides its kernels' operators, for the step and (`_each`) for each parameter."""

    dispatches: int
    dispatches_each: int
    calls: int
    calls_each: int


# Counted in a step of `python -m sim --profile hgx_h200` on scripts of 4 and 48 parameters (torch 2.13), with the work
# before the step that all three modes share. AdamW's counts are Adam's.
_ADAM = {"foreach": _Host(7, 2, 61, 9), "loop": _Host(5, 2, 33, 6), "fused": _Host(5, 0, 50, 2)}
_SGD = {"foreach": _Host(5, 0, 40, 0), "loop": _Host(5, 0, 25, 0), "fused": _Host(5, 0, 40, 0)}
_MOMENTUM = {"foreach": _Host(5, 0, 40, 3), "loop": _Host(5, 0, 25, 2), "fused": _Host(5, 0, 42, 2)}


class _Optimizer(NamedTuple):
    """An optimizer's step: `kind` as in torch's `_fused_` operators, `groups` with dtypes and parameters' sizes."""

    kind: str
    mode: str
    groups: Sequence[tuple[str, tuple[int, ...]]]
    states: int


def fused_kernel(one: ObservedComputation) -> Kernel:
    """Return the kernel of a fused step in place of one by other operators; any other kernel unchanged."""
    found, kernel = _optimizer(one), one.kernel
    if found is None:
        return kernel
    operations = tuple(_operations(found))
    elements = sum(sum(numels) * ELEMENT_BYTES.get(dtype, 4) for dtype, numels in found.groups)
    return Kernel(
        kind="optimizer",
        bytes_read=float(elements * (2 + found.states)),
        bytes_written=float(elements * (1 + found.states)),
        launches=len(operations),
        operations=operations,
        host=_host(found, kernel, len(operations)),
    )


def proposals(step: Step) -> Iterator[Counterfactual]:
    """Yield the change if the step has an optimizer that could be fused."""
    if not step.prices.has_laws:
        return
    saved_ns, names = 0.0, dict[str, None]()
    for one in step.observed.computed:
        if (kernel := fused_kernel(one)) is one.kernel:
            continue
        new = ObservedComputation(one.label, kernel)
        saved_ns += step.ns(one.operations()) - step.ns(new.operations())
        saved_ns += step.launching_ns(one.kernel) - step.launching_ns(kernel)
        names[_class_of(one.label)] = None
    if saved_ns > 0:
        yield Counterfactual(
            name="fused optimizer",
            group="setting",
            replays=True,
            rewrite=fused_kernel,
            made_by=f"fused=True for {' and '.join(names)}",
            saves_at_most_ns=saved_ns,
        )


def _class_of(label: str) -> str:
    return label.removesuffix(_OF_SCRIPT) if label.endswith(_OF_SCRIPT) else f"the optimizer of {label}"


def _optimizer(one: ObservedComputation) -> _Optimizer | None:
    """Return the optimizer whose whole step a computation is; None if no optimizer that could be fused steps there."""
    kind = _CLASSES.get(one.label.removesuffix(_OF_SCRIPT), "")
    is_others = (
        one.label.endswith(_OF_SCRIPT) and not kind
    )  # which need not know of `fused_kernel`, whatever they compute
    if one.role != OPTIMIZER or is_others:
        return None
    counted = list(one.operations())
    names = Counter[str]()
    for operation, times in counted:
        names[getattr(operation, "name", "")] += times
    if any(name.startswith(_FUSED) for name in names):
        return None
    plain = Counter[str]()
    for name, times in names.items():
        plain[name.removeprefix(_FOREACH)] += times
    if not kind:
        kind = "adam" if _is_adam(plain) else ""
    update = "addcdiv_" if kind.startswith("adam") else "mul_" if plain["mul_"] else "add_"
    groups = list(_groups(counted, update))
    if not kind or not groups:
        return None
    states = 2 + bool(plain["maximum"] + plain["maximum_"]) if kind.startswith("adam") else update == "mul_"
    mode = "foreach" if names[f"{_FOREACH}{update}"] else "loop"
    return _Optimizer(kind=kind, mode=mode, groups=groups, states=int(states))


def _is_adam(names: Counter[str]) -> bool:
    """Return whether a step is Adam's, by its operators: NAdam, Adamax and Adagrad have other ones."""
    is_whole = names["lerp_"] == names["addcdiv_"] and names["sqrt"] > 0
    return is_whole and {name.removesuffix("_") for name in names} <= _OF_ADAM


def _groups(counted: Sequence[tuple[Operation, int]], update: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the numbers of elements of the parameters that are updated together, with their dtype."""
    alone = dict[str, list[int]]()
    for operation, times in counted:
        if isinstance(operation, Foreach) and operation.name == f"{_FOREACH}{update}":
            for _ in range(times):
                yield operation.dtype, operation.numels
        elif isinstance(operation, Pointwise) and operation.name == update:
            alone.setdefault(operation.outputs[0].dtype, []).extend([operation.elements] * times)
    for dtype, numels in alone.items():
        yield dtype, tuple(numels)


def _operations(found: _Optimizer) -> Iterator[Foreach]:
    lists = 2 + found.states
    for dtype, numels in found.groups:
        if found.kind != "sgd":  # Adam counts its steps on the GPU
            ones = (1,) * len(numels)
            yield Foreach(name=f"{_FOREACH}add_", dtype="float32", numels=ones, lists=1, read=1, written=1)
        yield Foreach(
            name=f"{_FUSED}{found.kind}_", dtype=dtype, numels=numels, lists=lists, read=lists, written=lists - 1
        )


def _host(found: _Optimizer, kernel: Kernel, operators: int) -> HostWork:
    """Return the host work of the fused step, including the work before it."""
    laws = _ADAM if found.kind != "sgd" else _MOMENTUM if found.states else _SGD
    old, new = laws[found.mode], laws["fused"]
    parameters = sum(len(numels) for _, numels in found.groups)
    host = kernel.host
    fewer = kernel.launches - operators
    dispatches = host.dispatches - fewer - (old.dispatches - new.dispatches)
    dispatches -= parameters * (old.dispatches_each - new.dispatches_each)
    calls = host.calls - (old.calls - new.calls) - parameters * (old.calls_each - new.calls_each)
    left = max(host.operators - fewer, 0)  # each operator is dispatched
    return host._replace(dispatches=max(dispatches, left), operators=left, calls=max(calls, 0))
