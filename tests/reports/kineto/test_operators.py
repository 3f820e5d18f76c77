"""For what kernels were launched: by operators, annotations and modules, forward and backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reports.kineto import recording as kineto
from reports.kineto import tables as kineto_tables
from reports.kineto.pieces import TracedSpan
from tests.reports.kineto.events import event, kernel, launch

H200 = Path(__file__).parents[2] / "data" / "kineto_h200"
EVALUATES = "autograd::engine::evaluate_function: "


def operator(name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, tid, **args)


def backward(name: str, ts: float, dur: float, sequence: int, tid: int = 2, of: int = 1) -> dict[str, Any]:
    args = {"Sequence number": sequence, "Fwd thread id": of}
    return event("cpu_op", f"{EVALUATES}{name}", ts, dur, tid, **args)


def forward(name: str, ts: float, dur: float, sequence: int, tid: int = 1) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, tid, **{"Sequence number": sequence, "Fwd thread id": 0})


def pieces(path: Path) -> list[TracedSpan]:
    return sorted(kineto.read([path], "r").pieces, key=lambda piece: piece.start_ns)


@pytest.mark.parametrize("name", ["rec_base", "gpt2_bf16"])
def test_of_a_trace_of_a_gpu_all_kernels_have_an_operator_and_most_an_annotation(name):
    """Measured traces: 284 and 2,496 kernels, copies and memsets of two steps each."""
    found = kineto.read([H200 / f"{name}.json.gz"], name)
    assert kineto_tables.without_operator(kineto_tables.kernels(found))["share_of_time"] <= 0.03
    assert kineto_tables.without_annotation(kineto_tables.kernels(found))["share_of_time"] <= 0.03
    assert {piece.step for piece in found.pieces} == {0, 1}


def test_a_table_by_operator_has_backward_beside_forward():
    found = kineto_tables.tables(kineto.read([H200 / "gpt2_bf16.json.gz"], "r"))
    rows = found["by_operator"].set_index("operator")
    linear, adam = rows.loc["aten::linear"], rows.loc["aten::_fused_adamw_"]
    assert 1.8 * linear["forward_ns"] < linear["backward_ns"] < 2.6 * linear["forward_ns"]
    assert (adam["forward_ns"], adam["backward_ns"]) == (0, 0)
    assert adam["optimizer_ns"] > 1e6
    modules = found["by_module"].set_index("module")
    assert modules.loc["DistributedDataParallel.forward", "share"] == pytest.approx(0.96, abs=0.01)
    assert modules.loc["Optimizer.step#AdamW.step", "share"] == pytest.approx(0.03, abs=0.003)


def test_a_backward_kernel_is_its_forward_operators_by_sequence_number_and_thread(trace):
    """The same sequence number on another thread is of another operator."""
    path = trace(
        event("user_annotation", "mine", 0, 100),
        forward("aten::linear", 10, 20, 7), forward("aten::addmm", 12, 10, 8), launch(13, 1),
        forward("aten::relu", 40, 9, 9),
        forward("aten::tanh", 10, 5, 8, tid=3), forward("aten::sin", 16, 5, 12, tid=3),
        backward("ReluBackward0", 200, 9, 9), launch(203, 2, tid=2),
        backward("AddmmBackward0", 210, 9, 8), launch(213, 3, tid=2),
        backward("SinBackward0", 220, 3, 12, of=5), backward("TanhBackward0", 224, 6, 8, of=5), launch(225, 4, tid=2),
        *(kernel(f"k{n}", 300 + 10 * n, 5, correlation=n) for n in range(1, 5)),
    )  # fmt: skip
    assert [(one.origin.operator, one.origin.phase, one.label) for one in pieces(path)] == [
        ("aten::linear", "forward", "mine"),
        ("aten::relu", "backward", "mine (backward)"),
        ("aten::linear", "backward", "mine (backward)"),
        ("aten::tanh", "backward", "aten::tanh (backward)"),
    ]


def test_an_accumulated_gradient_is_the_function_that_ran_before_it(trace):
    accumulates = f"{EVALUATES}torch::autograd::AccumulateGrad"
    path = trace(
        forward("aten::linear", 10, 20, 7), backward("AddmmBackward0", 100, 9, 7),
        operator(accumulates, 110, 9, 2), launch(112, 1, tid=2), kernel("k", 200, 5, correlation=1),
    )  # fmt: skip
    (found,) = pieces(path)
    assert (found.origin.operator, found.origin.phase) == ("aten::linear", "backward")


def test_a_backward_function_without_its_forward_operator_is_named_itself(trace):
    path = trace(backward("MulBackward0", 100, 9, 7), launch(102, 1, tid=2), kernel("k", 200, 5, correlation=1))
    (found,) = pieces(path)
    assert (found.origin.operator, found.origin.phase, found.label) == ("MulBackward0", "backward", "MulBackward0")


def test_modules_of_python_stacks_count_as_annotations_do(trace):
    def call(name: str, ts: float, dur: float) -> dict[str, Any]:
        return event("python_function", name, ts, dur)

    path = trace(
        call("train.py(3): step", 0, 100), call("nn.Module: Net_0", 5, 90), call("nn.Module: Linear_1", 10, 40),
        call("torch/nn/modules/linear.py(134): forward", 12, 30), forward("aten::linear", 15, 20, 3), launch(16, 1),
        backward("AddmmBackward0", 200, 9, 3), launch(203, 2, tid=2),
        kernel("a", 300, 5, correlation=1), kernel("b", 310, 5, correlation=2),
    )  # fmt: skip
    found = pieces(path)
    assert [one.origin.modules for one in found] == [("Net_0", "Linear_1")] * 2
    assert [one.label for one in found] == ["Linear_1", "Linear_1 (backward)"]


def test_on_one_thread_forward_and_backward_are_apart(trace):
    """As on a CPU; with modules around the forward pass most of what nothing encloses is of the backward pass."""
    path = trace(
        event("python_function", "nn.Module: Net_0", 5, 90), forward("aten::linear", 15, 20, 3),
        backward("AddmmBackward0", 200, 9, 3, tid=1), backward("TBackward0", 210, 9, 2, tid=1),
    )  # fmt: skip
    assert [one.origin.phase for one in pieces(path)] == ["forward", "backward", "backward"]


def test_without_a_launch_the_number_that_kernel_and_operator_share_counts(trace):
    numbered = {"External id": 5}
    path = trace(
        operator("aten::relu", 0, 9), operator("aten::clamp_min", 2, 5, **numbered), kernel("k", 20, 5, **numbered)
    )
    (found,) = pieces(path)
    assert found.origin.operator == "aten::relu"


def test_a_collective_is_its_call_and_no_backward_of_an_operator(trace):
    path = trace(
        forward("aten::linear", 0, 9, 1), backward("AddmmBackward0", 20, 50, 1),
        operator("c10d::allreduce_", 30, 20, 2), operator("record_param_comms", 32, 9, 2), launch(33, 1, tid=2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 100, 9, correlation=1),
    )  # fmt: skip
    (found,) = pieces(path)
    assert (found.origin.operator, found.origin.phase, found.kind) == ("c10d::allreduce_", "backward", "all_reduce")


def test_labels_of_operators_make_times_of_computations_cover_a_trace():
    """Without annotations of one's own, all kernels have a label and which of its calls they are."""
    found = kineto.read([H200 / "rec_base.json.gz"], "r").pieces
    known = sum(piece.end_ns - piece.start_ns for piece in found if piece.call >= 0)
    assert known / sum(piece.end_ns - piece.start_ns for piece in found) > 0.97
