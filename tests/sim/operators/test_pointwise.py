from __future__ import annotations

from scenarios.config.gpu import Gpu
from scenarios.seam.operations.pointwise import Operand, Pointwise, contiguous
from scenarios.seam.operations.pointwise import strided_call as by_strides
from sim.operators.laws import seconds
from tests.sim.operators.rows import (
    A100_PCIE,
    FP32_MEASURING_US,
    H200,
    MEASURING_US,
    V100_PCIE,
    mean_error,
    on_every_gpu,
)


def add(elements: int) -> Pointwise:
    return contiguous("add", elements, "float32", inputs=2)


def cast(elements: int, source: str, target: str) -> Pointwise:
    return Pointwise(
        name="_to_copy",
        elements=elements,
        inputs=(Operand(dtype=source, elements=elements),),
        outputs=(Operand(dtype=target, elements=elements),),
    )


def mixed_add(elements: int) -> Pointwise:
    """float32 + bfloat16."""
    operand = Operand(dtype="float32", elements=elements)
    return Pointwise(
        name="add",
        elements=elements,
        inputs=(operand, Operand(dtype="bfloat16", elements=elements)),
        outputs=(operand,),
    )


def make_strided(name: str, dtype: str, operands: tuple[tuple[int, int], ...], dims: int) -> Pointwise:
    """Operands as (elements, stride), the result last."""
    *inputs, output = (Operand(dtype=dtype, elements=elements, stride=stride) for elements, stride in operands)
    return Pointwise(name=name, elements=output.elements, inputs=tuple(inputs), outputs=(output,), dims=dims)


# One H200, torch 2.11, 2026-11-26: single operators between events, us.
OPERATORS = [
    (add(4096), 3.904),
    (contiguous("gelu", 4096, "bfloat16"), 4.128),
    (contiguous("gelu", 65536, "bfloat16"), 4.352),
    (add(65536), 4.16),
    (add(1048576), 7.264),
    (add(16777216), 51.648),
    (contiguous("copy_", 16777216, "float32"), 36.032),
    (contiguous("relu", 134217728, "float32"), 256.16),
    (add(134217728), 370.752),
    (cast(134217728, "float32", "bfloat16"), 188.0),
]
# The same machine: kernels in traces of a step of GPT-2 and of a DLRM, us.
KERNELS = [
    (contiguous("add_", 12582912, "float32", inputs=2), 32.5),
    (mixed_add(12582912), 48.3),
    (cast(12582912, "bfloat16", "float32"), 36.6),
    (cast(38633472, "bfloat16", "float32"), 114.9),
    (cast(412090368, "bfloat16", "float32"), 1198.3),
    (cast(412090368, "float32", "bfloat16"), 562.5),
    (cast(12582912, "float32", "bfloat16"), 18.7),
    (cast(2359296, "bfloat16", "float32"), 10.0),
    (contiguous("fill_", 412090368, "float32", inputs=0), 350.6),
    (contiguous("fill_", 38633472, "float32", inputs=0), 34.85),
    (contiguous("gelu", 50331648, "bfloat16"), 67.6),
    (contiguous("gelu_backward", 50331648, "bfloat16", inputs=2), 92.1),
    (contiguous("mul", 38633472, "float32"), 74.6),
    (contiguous("threshold_backward", 8388608, "float32", inputs=2), 23.1),
    (contiguous("clamp_min", 8388608, "float32"), 15.6),
    (make_strided("copy_", "bfloat16", ((37748736, 1), (37748736, 1)), 5), 117.7),
    (make_strided("add", "float32", ((12582912, 1), (786432, 1), (12582912, 1)), 2), 41.95),
    (make_strided("add_", "float32", ((28311552, 1), (28311552, 27), (28311552, 1)), 3), 161.5),
    (make_strided("copy_", "float32", ((2875392, 1), (2875392, 1)), 2), 10.4),
    (by_strides("add", (4096, 3456), [("bfloat16", (3456, 1)), ("float32", (0, 1))], [("float32", (3456, 1))]), 62.2),
    (make_strided("add", "float32", ((1048576, 1), (1048576, 1), (1048576, 1)), 2), 5.9),
]
# fp32 operators of an A100 PCIe 40 GB and a V100 PCIe (NeuSight's labels), us; nothing here is fitted on them.
A100_ROWS = [
    (contiguous("relu", 16384 * 1600, "float32"), 168.9),
    (contiguous("relu", 49152 * 2048, "float32"), 595.2),
    (contiguous("relu", 1572864 * 2048, "float32"), 18586.7),
    (add(16384 * 1024), 163.8),
    (add(32768 * 2048), 604.1),
    (add(131072 * 10240), 11855.1),
    (contiguous("gelu", 16384 * 2048, "float32"), 210.0),
    (contiguous("gelu", 786432 * 2048, "float32"), 9221.1),
    (contiguous("tanh", 32768 * 1600, "float32"), 315.6),
]
V100_ROWS = [
    (contiguous("relu", 16384 * 768, "float32"), 143.4),
    (contiguous("relu", 32768 * 1600, "float32"), 532.1),
    (contiguous("relu", 1048576 * 2048, "float32"), 20974.9),
    (add(16384 * 1280), 319.8),
    (add(32768 * 2048), 983.8),
    (contiguous("gelu", 16384 * 4096, "float32"), 674.0),
    (contiguous("tanh", 65536 * 16384, "float32"), 10481.9),
]


def test_operators_of_an_h200_are_within_4_percent() -> None:
    assert mean_error(seconds, OPERATORS, H200, MEASURING_US) < 0.04


def test_kernels_in_steps_of_an_h200_are_within_10_percent() -> None:
    assert mean_error(seconds, KERNELS, H200) < 0.10


def test_gpus_that_nobody_fitted_are_within_5_percent() -> None:
    assert mean_error(seconds, A100_ROWS, A100_PCIE, FP32_MEASURING_US) < 0.05
    assert mean_error(seconds, V100_ROWS, V100_PCIE, FP32_MEASURING_US) < 0.05


@on_every_gpu
def test_more_elements_never_take_less_time(on: Gpu) -> None:
    sizes = [1, 1000, 10**5, 10**6, 10**7, 10**8]
    for kind in (add, mixed_add, lambda n: contiguous("gelu", n, "bfloat16")):
        times = [seconds(kind(n), on) for n in sizes]
        assert times == sorted(times)


@on_every_gpu
def test_strides_and_casts_never_save_time(on: Gpu) -> None:
    n = 1 << 22
    plain = seconds(contiguous("copy_", n, "float32"), on)
    assert seconds(make_strided("copy_", "float32", ((n, 1), (n, 1)), 3), on) >= plain
    assert seconds(make_strided("copy_", "float32", ((n, 64), (n, 1)), 3), on) >= plain
    assert seconds(mixed_add(n), on) >= seconds(contiguous("add", n, "bfloat16", inputs=2), on)


def test_neighbouring_dimensions_are_merged() -> None:
    """The bias of a transposed gradient: [8192, 27, 128] + a view of [8192, 128, 27]."""
    plain, turned = ("float32", (3456, 128, 1)), ("float32", (3456, 1, 27))
    assert by_strides("add_", (8192, 27, 128), [plain, turned], [plain]) == make_strided(
        "add_", "float32", ((28311552, 1), (28311552, 27), (28311552, 1)), 3
    )
    assert by_strides("add", (8192, 27, 128), [plain, plain], [plain]) == add(28311552)
    row = ("float32", (0, 0, 1))
    assert by_strides("add", (8192, 27, 128), [plain, row], [plain]) == make_strided(
        "add", "float32", ((28311552, 1), (128, 1), (28311552, 1)), 2
    )
    number = by_strides("mul", (16,), [("float32", (1,)), ("float32", (0,))], [("float32", (1,))])
    assert (number.dims, number.inputs[1].elements) == (2, 1)
    assert by_strides("mul", (), [("float32", ())], [("float32", ())]).dims == 1
