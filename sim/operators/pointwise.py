"""The law of element-by-element operators: bytes of memory, sectors of L2, or instructions, whichever is slowest."""

from __future__ import annotations

from scenarios.seam.operations.pointwise import Operand, Pointwise
from sim.operators.chip import SECTOR, START_S, Chip, size

# Instructions per element, of 128 that a multiprocessor issues per clock, for operators that are bound by them in 16
# bit. gelu and gelu_backward: an H200's step of GPT-2 (2.98 and 3.28 TB/s instead of 4.3). Others: assumed from these.
INSTRUCTIONS = {
    **{"gelu": 45, "gelu_backward": 61, "tanh": 24, "sigmoid": 20, "silu": 24, "silu_backward": 30, "pow": 40},
    **{"exp": 12, "log": 12, "sin": 30, "cos": 30, "native_dropout": 40, "bernoulli_": 40, "normal_": 60},
    **{"uniform_": 40, "rand": 40, "randn": 60, "rand_like": 40, "randn_like": 60},
}
# Clocks of a multiprocessor per element where operands differ in dtype: each load and store looks at its dtype. Fitted
# on bfloat16 -> float32 copies and float32 + bfloat16 of an H200's step of GPT-2, 12M to 412M elements: within 5 %
# (2.4M: -20 %).
CAST_CLOCKS, CAST_LOAD_CLOCKS, CAST_STORE_CLOCKS = 0.24, 0.26, 0.20
# Clocks of a multiprocessor per element where offsets are computed from strides, and in addition per operand. Fitted on
# copies of 5 dimensions and broadcast adds in an H200's step of GPT-2: within 3 %.
STRIDED_CLOCKS, STRIDED_OPERAND_CLOCKS = 0.62, 0.06
# Clocks per element in addition to the longer of both, where operands differ in dtype and strides matter: a bfloat16
# product plus a float32 bias in an H200's step of a DLRM (14M elements, 62 us).
BOTH_CLOCKS = 0.2


def seconds(call: Pointwise, chip: Chip) -> float:
    """Return the time of the operator's kernel on an idle GPU, caches cold."""
    read, written = (sum(each.elements * size(each.dtype) for each in some) for some in (call.inputs, call.outputs))
    times = [chip.dram_s(read, written), chip.issue_s(_clocks(call))]
    operands = (*call.inputs, *call.outputs)
    if any(_is_scattered(each) for each in operands):
        times.append(chip.l2_s(sum(_l2_bytes(each, call.elements) for each in operands)))
    return START_S + max(times)


def _clocks(call: Pointwise) -> float:
    """Return the clocks of one multiprocessor for the instructions of all elements."""
    operands = (*call.inputs, *call.outputs)
    clocks = INSTRUCTIONS.get(call.name.removesuffix("_"), INSTRUCTIONS.get(call.name, 8)) / 128
    strided = cast = 0.0
    if call.dims > 1:
        strided = STRIDED_CLOCKS + STRIDED_OPERAND_CLOCKS * len(operands)
    if not _is_vectorised(call):
        cast = CAST_CLOCKS + CAST_LOAD_CLOCKS * len(call.inputs) + CAST_STORE_CLOCKS * len(call.outputs)
    both = BOTH_CLOCKS if strided and cast else 0.0
    return (clocks + max(strided, cast) + both) * call.elements


def _is_vectorised(call: Pointwise) -> bool:
    """Return whether the kernel looks up no operand's dtype at run time.

    torch has separate kernels for casts to 16 bit; a bool result (of comparisons) is part of its operator's kernel,
    too.
    """
    dtypes = {each.dtype for each in (*call.inputs, *call.outputs)} - {"bool"}
    to_half = len(call.inputs) == 1 and call.outputs[0].dtype in ("bfloat16", "float16")
    return len(dtypes) <= 1 or (to_half and call.inputs[0].dtype == "float32")


def _is_scattered(operand: Operand) -> bool:
    return operand.stride > 1


def _l2_bytes(operand: Operand, elements: int) -> float:
    """Return the bytes that cross from L2: whole sectors if neighbours are not adjacent in memory."""
    each = size(operand.dtype)
    return float(elements * min(SECTOR, each * operand.stride) if _is_scattered(operand) else operand.elements * each)
