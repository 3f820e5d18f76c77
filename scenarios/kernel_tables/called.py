"""Builds rows of an operator table from a profiler's trace: its torch calls, with their kernels' times.

A row's operator is the one that a script on a simulated GPU runs (`scenarios.workloads.script.gpu`): among nested
operators, the outermost one that torch does not decompose above its kernels.
"""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from scenarios.kernel_tables import embeddings
from scenarios.kernel_tables.arguments import DTYPES, NotKnownError, TracedArgument, calls, tensor
from scenarios.kernel_tables.row import MeasuredOperator
from scenarios.kernel_tables.traced import TracedCall, TracedKernel
from scenarios.modules.operators import is_composite, price
from scenarios.modules.precision import rounding_to_tf32
from scenarios.seam.operations.operation import Operation
from scenarios.workloads.script.gpu.kernels import as_laid_out

Operations = tuple[Operation, ...]


@dataclass(slots=True)
class OperatorRows:
    """A table's rows; `left_out` has the time in us of kernels without a row, by operator."""

    rows: list[MeasuredOperator] = field(default_factory=list)
    left_out: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def us(self) -> float:
        """The time of all calls of all rows, in us."""
        return sum(row.us * row.calls for row in self.rows)


# Names of library kernels for products of float32, with and without rounding to TF32.
_TF32, _NOT_TF32 = re.compile(r"tf32|s1688", re.IGNORECASE), re.compile(r"sgemm|ffma|scudnn|_f32f32_f32f32_")
# torch/aten: elements of a block of multi_tensor_apply (ForeachUtils, kChunkSize).
_CHUNK = 65536
_MULTI_TENSOR = "multi_tensor_apply_kernel"
_ELEMENT_SIZE = re.compile(r"OpaqueType<(\d+)u?>")
_ELEMENTS = {
    **{"c10::BFloat16": torch.bfloat16, "__nv_bfloat16": torch.bfloat16, "c10::Half": torch.float16},
    **{"__half": torch.float16, "double": torch.float64, "float": torch.float32},
}
_ELEMENT = re.compile("|".join(_ELEMENTS))  # a kernel's name gives its tensors' dtype first
_BY_SIZE = {1: torch.uint8, 4: torch.float32, 8: torch.int64}
# Optimizers' lists of one number for each parameter, and lists that are empty unless an argument is set.
_STEPS, _OPTIONAL = "state_steps", {"max_exp_avg_sqs": "amsgrad", "momentum_buffer_list": "momentum"}
# Sums of gradients: on a GPU autograd adds in place, with meta tensors it does not.
_ADDS, _EVALUATES = "aten::add", "autograd::engine::evaluate_function: "
# Errors of torch and of descriptions at arguments that do not match the operator's schema.
_NOT_AS_DECLARED = (RuntimeError, TypeError, ValueError, LookupError, AssertionError)
_HOST_COPIES = "copies between the host and the GPU"


def rows_of(traced: Sequence[TracedCall], parameters: Sequence[Sequence[int]]) -> OperatorRows:
    """Return the rows of calls, one for each description, with the mean time of its calls.

    `parameters` are the shapes of the gradients that a step accumulates, as a trace omits lists of more than 30. Calls
    of one operator whose arguments differ only in parts that no description has are one row.
    """
    rows = OperatorRows()
    times: dict[Operations, list[float]] = defaultdict(list)
    with _as_rounded(traced), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for operations, us in _Walk(rows.left_out, parameters, _sixteen_bits(traced)).walk(traced):
            times[operations].append(us)
    rows.rows = [
        MeasuredOperator(operations=operations, us=math.fsum(each) / len(each), calls=len(each))
        for operations, each in times.items()
        if math.fsum(each) > 0
    ]
    return rows


class _Walk:
    """A walk from the outermost operators down to operators that have a description."""

    def __init__(
        self, left_out: dict[str, float], parameters: Sequence[Sequence[int]], sixteen_bits: torch.dtype
    ) -> None:
        self._left_out, self._parameters, self._sixteen_bits = left_out, parameters, sixteen_bits
        self._known: dict[tuple[object, ...], Operations | None] = {}

    def walk(self, traced: Iterable[TracedCall]) -> Iterator[tuple[Operations, float]]:
        """Yield the descriptions of calls with their times in us, in the order of the calls."""
        checks_us = 0.0
        rest = [(call, "") for call in reversed(list(traced))]  # each call with its caller's name
        while rest:
            call, around = rest.pop()
            if call.name == embeddings.CHECK:  # its time counts as the next lookup's
                checks_us += _us(call)
                continue
            operations = self._describe(call, around)
            if operations is None:
                self._leave_out(call, call.kernels)
                rest += [(one, call.name) for one in reversed(call.calls)]
            elif not operations:
                self._leave_out(call, _kernels(call))
            elif checks_us and embeddings.with_bounds_check(operations) != operations:
                yield embeddings.with_bounds_check(operations), _us(call) + checks_us
                checks_us = 0.0
            else:
                yield operations, _us(call)
        if checks_us:
            self._left_out[embeddings.CHECK] += checks_us

    def _leave_out(self, call: TracedCall, kernels: Iterable[TracedKernel]) -> None:
        for kernel in kernels:
            self._left_out[_HOST_COPIES if kernel.is_host_copy else call.name] += kernel.us

    def _describe(self, call: TracedCall, around: str) -> Operations | None:
        """Return the description of a call; () if it is unknown, None if the operators that it called have
        descriptions.
        """
        if call.name.startswith("fbgemm::"):
            return self._of_fbgemm(call)
        if not call.name.startswith("aten::") or not call.types:
            return None if call.calls or not call.name.startswith("aten::") else ()
        if any(kernel.is_host_copy for kernel in _kernels(call)) or _is_cast(call):
            return None
        name = _ADDS if call.name == f"{_ADDS}_" and around.startswith(_EVALUATES) else call.name
        key = name, *_key(call)
        if key not in self._known:
            self._known[key] = self._of_torch(call, name)
        return self._known[key]

    def _of_fbgemm(self, call: TracedCall) -> Operations | None:
        listed: list[TracedCall] = [call]
        for one in listed:
            try:
                if traced := embeddings.describe_call(one.name, _arguments_of(one, self._sixteen_bits)):
                    return traced
            except _NOT_AS_DECLARED:
                return ()
            listed += one.calls
        return None

    def _of_torch(self, call: TracedCall, name: str) -> Operations | None:
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
        if packet is None:
            return None
        given = _arguments_of(call, self._sixteen_bits)
        try:
            for func, args, kwargs in calls(packet, given, lambda *one: self._list(call, given, *one)):
                if is_composite(func) and not call.kernels:  # some composite operators have GPU kernels of their own
                    return None
                if (traced := _describe(func, args, kwargs)) is not None:
                    return traced
        except (NotKnownError, *_NOT_AS_DECLARED):
            return ()
        return ()

    def _list(self, call: TracedCall, given: Sequence[TracedArgument], declared: Any, one: TracedArgument) -> Any:
        """Return a list of tensors that a trace omits: indices, or an optimizer's tensors of each parameter."""
        if "Optional[Tensor" in str(declared.type):
            return _indices(call, given)
        if not one.is_list:
            return declared.default_value
        if (usual := _OPTIONAL.get(declared.name)) is not None and not _is_on(call, usual):
            return []
        shapes = self._shapes(call)
        return [
            torch.empty(() if declared.name == _STEPS else shape, dtype=one.dtype, device="meta") for shape in shapes
        ]

    def _shapes(self, call: TracedCall) -> Sequence[Sequence[int]]:
        """Return the shapes of a list's tensors, of parameters or of one number each, that match the kernels' blocks.

        Raises:
            NotKnownError: the kernels have another number of blocks.
        """
        blocks = sum(kernel.blocks for kernel in _kernels(call) if _MULTI_TENSOR in kernel.name)
        for every in _once(self._parameters):
            matrices = [shape for shape in every if len(shape) > 1]
            others = [shape for shape in every if len(shape) <= 1]
            steps: list[Sequence[int]] = [()] * len(every)
            tried = [every, steps, matrices, others]
            if _counts_steps(call):  # a step's number takes one block, as a small parameter does
                # Lists of numbers first: they explain the blocks of small models as well as parameters do.
                tried.insert(0, steps)
            for shapes in tried:
                if shapes and blocks == sum(-(-math.prod(shape) // _CHUNK) for shape in shapes):
                    return shapes
        raise NotKnownError(call.name)


def _once(accumulated: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
    """Yield possible parameters of a model, for steps that accumulate their gradients once, twice, ..."""
    for passes in range(1, len(accumulated) + 1):
        length, rest = divmod(len(accumulated), passes)
        first = accumulated[:length]
        if not rest and all(first == accumulated[at : at + length] for at in range(0, len(accumulated), length)):
            yield first


def _describe(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operations | None:
    """Return the description of a call; None if the call does not run on the meta device."""
    try:
        kernel, _ = price(func, args, kwargs, _result(func, args, kwargs), on_gpu=True)
    except _NOT_AS_DECLARED:
        return None
    return () if kernel is None else kernel.operations


def _result(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a call's result. Attention kernels are described by their inputs; list operators change them in place."""
    name = func.overloadpacket.__name__
    if name.startswith("_scaled_dot_product_"):
        return (args[0],)
    if name.startswith(("_fused_", "_foreach_")) and name.endswith("_"):
        return None
    return as_laid_out(func, args, func(*args, **kwargs))


def _indices(call: TracedCall, given: Sequence[TracedArgument]) -> list[Any]:
    """Return the indices of `index` and `index_put`, shaped as the result or the values, with None for other
    dimensions.

    Raises:
        NotKnownError: the trace has neither.
    """
    values = given[2] if len(given) > 2 and given[2].is_tensor and "put" in call.name else None
    shape = values.dims if values is not None else next(iter(call.gradients or ()), None)
    of = given[0].dims
    if not shape or math.prod(shape) == 1:
        raise NotKnownError(call.name)
    before = next((at for at, (one, other) in enumerate(zip(of, shape, strict=False)) if one != other), 0)
    most = min(len(of) - before, len(shape) - before) - 1
    behind = 0
    while behind < most and of[-1 - behind] == shape[-1 - behind]:
        behind += 1
    indexed, own = len(of) - before - behind, shape[before : len(shape) - behind]
    if indexed < 1 or not own:
        raise NotKnownError(call.name)
    return [None] * before + [tensor(own, None, torch.int64) for _ in range(indexed)]


def _arguments_of(call: TracedCall, sixteen_bits: torch.dtype) -> list[TracedArgument]:
    dtype = _dtype_of_lists(call, sixteen_bits)
    strides = call.strides if len(call.strides) == len(call.dims) else [None] * len(call.dims)
    values = call.values if len(call.values) == len(call.dims) else [""] * len(call.dims)
    return [TracedArgument(*one, dtype) for one in zip(call.dims, strides, call.types, values, strict=True)]


def _dtype_of_lists(call: TracedCall, sixteen_bits: torch.dtype) -> torch.dtype:
    """Return the dtype of tensors in lists, from kernels' names, else of the first tensor argument."""
    if "TensorList" in call.types:
        for kernel in _kernels(call):
            if traced := _ELEMENT_SIZE.search(kernel.name):
                size = int(traced[1])
                return sixteen_bits if size == sixteen_bits.itemsize else _BY_SIZE.get(size, torch.float32)
            if traced := _ELEMENT.search(kernel.name):
                return _ELEMENTS[traced[0]]
    return next((DTYPES[kind] for kind in call.types if kind in DTYPES), torch.float32)


def _sixteen_bits(traced: Sequence[TracedCall]) -> torch.dtype:
    """Return the 16-bit dtype that most tensors have."""
    counts = Counter(kind for call in _all(traced) for kind in call.types)
    return torch.float16 if counts["c10::Half"] > counts["c10::BFloat16"] else torch.bfloat16


def _as_rounded(traced: Sequence[TracedCall]) -> AbstractContextManager[None]:
    """Describe products and convolutions of float32 as rounded to TF32 if the kernels' names say so.

    Where no name tells, torch rounds convolutions only.
    """
    of_products, of_convolutions = set[bool](), set[bool]()
    for call in _all(traced):
        if not any(_is_product(call.name)) or "float" not in call.types:
            continue
        seen = of_convolutions if "conv" in call.name else of_products
        for kernel in call.kernels:
            seen.update([True] if _TF32.search(kernel.name) else [False] if _NOT_TF32.search(kernel.name) else [])
    return rounding_to_tf32(products=True in of_products, convolutions=True in of_convolutions or not of_convolutions)


def _is_product(name: str) -> Iterator[bool]:
    yield name.startswith("aten::")
    yield from (word in name for word in ("mm", "conv", "mv", "dot"))


def _is_cast(call: TracedCall) -> bool:
    """Return whether a call, under autocast, casts its inputs and calls its operator on the result."""
    casts = any(one.name in ("aten::to", "aten::_to_copy") for one in call.calls)
    return any(one.name == call.name and (casts or list(one.types) != list(call.types)) for one in call.calls)


def _counts_steps(call: TracedCall) -> bool:
    """Return whether a call adds 1 to each tensor of a list, as optimizers count their steps."""
    return call.name == "aten::_foreach_add_" and call.values[1:2] == ["1"] and call.types[1:2] == ["Scalar"]


def _is_on(call: TracedCall, argument: str) -> bool:
    packet = getattr(torch.ops.aten, call.name.removeprefix("aten::"))
    names = [each.name for each in packet.default._schema.arguments]
    at = names.index(argument) if argument in names else len(call.values)
    return at < len(call.values) and call.values[at] not in ("", "False", "0", "0.")


def _key(call: TracedCall) -> tuple[object, ...]:
    lists = any(kind == "TensorList" for kind in call.types)
    kernels = tuple((kernel.name, kernel.blocks) for kernel in _kernels(call)) if lists else ()
    return repr((call.dims, call.strides, call.types, call.values, call.gradients)), kernels


def _kernels(call: TracedCall) -> Iterator[TracedKernel]:
    for one in _all([call]):
        yield from one.kernels


def _us(call: TracedCall) -> float:
    return math.fsum(kernel.us for kernel in _kernels(call))


def _all(traced: Iterable[TracedCall]) -> Iterator[TracedCall]:
    """Yield calls and the calls inside them; without recursion, as calls may nest deeper than Python's stack."""
    rest = list(traced)
    while rest:
        call = rest.pop()
        yield call
        rest += call.calls
