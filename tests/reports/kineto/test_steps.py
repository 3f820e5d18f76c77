"""Steps of traces that annotate none: by what repeats."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from reports.kineto.steps import steps_of
from reports.kineto.trace_file import read_trace
from tests.reports.kineto.events import event, kernel

H200 = Path(__file__).parents[2] / "data" / "kineto_h200"
EVALUATES = "autograd::engine::evaluate_function: "


def bounds(path: Path) -> list[tuple[float, float]]:
    """Return starts and ends of steps, in us."""
    return [(step.start_ns / 1000, step.end_ns / 1000) for step in steps_of(read_trace(path))]


def a_step(at: float, layers: int = 12) -> list[dict[str, Any]]:
    """Return a step of 400 us: `layers` alike, their backward passes on a thread of its own, and an optimizer."""
    forward = ["aten::embedding", *["aten::layer_norm", "aten::linear", "aten::gelu"] * layers, "aten::cross_entropy"]
    backward = ["NllLossBackward0", *["GeluBackward0", "AddmmBackward0"] * layers, "EmbeddingBackward0"]
    listed = [event("cpu_op", name, at + 3 * n, 2, **{"Sequence number": n}) for n, name in enumerate(forward)]
    listed += [event("cpu_op", f"{EVALUATES}{name}", at + 200 + 3 * n, 2, 2) for n, name in enumerate(backward)]
    return [*listed, event("cpu_op", "aten::_fused_adamw_", at + 390, 5)]


@pytest.mark.parametrize("name", ["rec_base", "gpt2_bf16"])
@pytest.mark.parametrize("categories", [("cpu_op",), ("kernel", "gpu_memcpy", "gpu_memset")])
def test_two_steps_of_a_gpus_trace_are_two_without_optimizers(name, categories, tmp_path):
    content = json.loads(gzip.decompress((H200 / f"{name}.json.gz").read_bytes()))
    content["traceEvents"] = [one for one in content["traceEvents"] if one["cat"] in categories]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    assert len(bounds(path)) == 2


@pytest.mark.parametrize("count", [2, 3, 7])
def test_steps_begin_with_their_forward_pass(trace, count):
    path = trace(*(one for step in range(count) for one in a_step(1000 * step)))
    ends = [1000.0 * step for step in range(1, count)]
    assert bounds(path) == list(zip([0.0, *ends], [*ends, 1000.0 * (count - 1) + 395], strict=True))


def test_incomplete_first_and_last_steps_are_none(trace):
    """The first one is cut in its forward pass, the last one in its backward pass."""
    events = [one for step in range(4) for one in a_step(1000 * step) if 60 <= one["ts"] < 3230]
    assert bounds(trace(*events)) == [(1000, 2000), (2000, 3000)]


def test_a_first_step_of_other_operators_is_a_step(trace):
    warm_up = [event("cpu_op", "aten::zeros", 396 + n, 0.5) for n in range(3)]
    path = trace(*a_step(0), *warm_up, *(one for step in (1, 2) for one in a_step(1000 * step)))
    assert [start for start, _ in bounds(path)] == [0, 1000, 2000]


def test_layers_of_one_step_are_no_steps(trace):
    assert bounds(trace(*a_step(0))) == []
    inference = [one for one in a_step(0, layers=48) if "Sequence number" in one["args"]]
    assert bounds(trace(*inference)) == []


def test_kernels_that_repeat_are_steps_where_nothing_else_is_known(trace):
    names = ["embedding", "gemm", "relu", "gemm", "relu", "loss"]
    path = trace(*(kernel(name, 100 * step + 10 * n, 9) for step in range(3) for n, name in enumerate(names)))
    assert bounds(path) == [(0, 100), (100, 200), (200, 259)]


def test_a_trace_without_repetition_is_one_step(trace):
    assert bounds(trace(*(kernel(f"k{n}", 10 * n, 9) for n in range(9)))) == []
