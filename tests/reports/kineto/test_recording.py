"""What becomes of the events of a profiler's trace.

The samples have the fields of real traces of those releases; times and sizes of the GPUs' ones are made up.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import pytest

from reports.kineto import recording as kineto
from reports.kineto import tables as kineto_tables
from reports.run import Run
from reports.sections.kineto import KERNELS, KernelsView
from reports.terminal.render import render_report
from reports.terminal.text import as_text
from tests.reports import shown as run_tables
from tests.reports.kineto.events import CPU, OLD, event, kernel, launch, spans

# What becomes of a GPU's trace


def test_steps_go_from_the_first_kernel_launched_in_them_to_the_end_of_the_last(gpus):
    first, second = spans(gpus, kind="step", rank=0)
    assert (first.step, second.step) == (5, 6)
    # the copy at 20 us, the memset from 905 to 907 us: beyond the annotation, which ends at 900
    assert first.end_ns - first.start_ns == 887_000
    assert second.start_ns - first.start_ns == 1_000_250


def test_kernels_carry_the_innermost_annotation_of_their_launch(gpus):
    found = [(s.label, s.kernel) for s in spans(gpus, kind="compute", rank=0, step=5)]
    assert found == [
        ("forward", "elementwise"),
        ("lookup", "embedding_lookup"),
        ("forward", "gemm"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)", "elementwise"),
        ("Optimizer.step#Adam.step", "optimizer"),
        ("Memset (Device)", "elementwise"),
    ]


def test_the_launch_is_when_a_kernel_was_issued(gpus):
    lookup = spans(gpus, label="lookup", rank=0)[0]
    copy = spans(gpus, label="forward", rank=0)[0]
    assert (lookup.start_ns - copy.start_ns, lookup.issued_ns - copy.issued_ns) == (20_000, 18_000)
    assert lookup.end_ns - lookup.start_ns == 100_125
    assert (copy.bytes_read, copy.bytes_written) == (4096.0, 4096.0)


def test_collectives_are_our_verbs_with_bytes_and_calls(gpus):
    exchange = spans(gpus, kind="all_to_all_single", step=5)
    assert [(s.rank, s.group, s.call, s.stream, s.label) for s in exchange] == [
        (0, "0", 0, "20", "forward"),
        (1, "0", 0, "20", "forward"),
    ]
    # half of the input stays where it is
    assert {(s.bytes_in, s.bytes_out, s.bytes_sent, s.dtype) for s in exchange} == {(4096, 4096, 2048, "float32")}
    assert exchange[1].start_ns - exchange[0].start_ns == 30_000


def test_cpu_events_fill_in_fields_that_kernels_lack(gpus):
    reductions = spans(gpus, kind="all_reduce", rank=1)
    assert [(s.bytes_in, s.dtype, s.group, s.call) for s in reductions] == [
        (8192, "bfloat16", "0", 1),
        (8192, "bfloat16", "0", 3),
    ]


def test_a_communication_is_waited_for_from_where_its_rank_computes_no_more(gpus):
    exchange = spans(gpus, kind="all_to_all_single", rank=0, step=5)[0]
    assert (exchange.wait_from_ns, exchange.wait_until_ns) == (exchange.start_ns, exchange.end_ns)


@pytest.mark.parametrize(("took", "waited"), [(20, (-1, -1)), (60, (50_000, 70_000))])
def test_a_communication_is_waited_for_as_far_as_it_outlasts_the_computing(trace, took, waited):
    path = trace(kernel("gemm", 0, 50), kernel("ncclDevKernel_AllReduce_Sum_f32", 10, took, stream=9))
    (found,) = spans(kineto.read([path], "r"), kind="all_reduce")
    assert (found.wait_from_ns, found.wait_until_ns) == waited


def test_the_main_stream_is_where_most_was_computed_not_waited(trace):
    waits = kernel("ncclKernel_AllReduce_Sum", 0, 90, stream=9)
    found = kineto.read([trace(kernel("gemm", 0, 5), kernel("gemm", 0, 3, stream=8), waits)], "r")
    assert {(s.stream, s.end_ns) for s in spans(found) if s.kind != "step"} == {
        ("main", 5000),
        ("8", 3000),
        ("9", 90_000),
    }


def test_the_critical_path_enters_a_collective_where_its_last_member_did(gpus):
    run = Run.of(gpus.recording)
    found = run.waited_for.query("step == 5 and kind == 'all_to_all_single'")
    assert found["duration_ns"].tolist() == [50_000]
    assert run.steps["complete"].all()


def test_without_step_annotations_all_is_one_step(trace):
    path = trace(kernel("a", 3, 4), kernel("b", 9, 1))
    (step,) = spans(kineto.read([path], "r"), kind="step")
    assert (step.step, step.start_ns, step.end_ns) == (0, 0, 7000)


def test_a_kernel_launched_outside_all_steps_belongs_to_none(trace):
    path = trace(
        event("user_annotation", "ProfilerStep#3", 10, 10), launch(5, 1), launch(12, 2), launch(21, 3),
        kernel("a", 11, 1, correlation=1), kernel("b", 30, 1, correlation=2), kernel("c", 40, 1, correlation=3),
    )  # fmt: skip
    found = kineto.read([path], "r")
    assert {s.label: s.step for s in spans(found, kind="compute")} == {"a": -1, "b": 3, "c": -1}
    assert "2 kernels outside any step" in as_text(render_report(KERNELS, KernelsView(found)))


def test_a_step_without_kernels_is_its_annotation(trace):
    path = trace(kernel("a", 0, 1), *(event("user_annotation", f"ProfilerStep#{n}", 20 * n, 10) for n in (0, 1)))
    assert [(s.step, s.start_ns, s.end_ns) for s in spans(kineto.read([path], "r"), kind="step")] == [
        (0, 0, 1000),
        (1, 20_000, 30_000),
    ]


def test_annotations_of_other_threads_and_torchs_own_name_no_kernel(trace):
    path = trace(
        event("user_annotation", "mine", 0, 100), event("user_annotation", "other", 0, 100, 2),
        event("user_annotation", "nccl:all_reduce", 5, 10), launch(6, 1), kernel("a", 10, 1, correlation=1),
        launch(6, 2, tid=3), kernel("b", 20, 1, correlation=2), kernel("c", 30, 1, correlation=99),
    )  # fmt: skip
    found = kineto.read([path], "r")
    assert [s.label for s in spans(found, kind="compute")] == ["mine", "b", "c"]
    assert kineto_tables.without_annotation(kineto_tables.kernels(found))["share_of_kernels"] == pytest.approx(2 / 3)


def test_of_annotations_that_begin_together_the_shorter_is_inside(trace):
    around = [event("user_annotation", name, 0, dur) for name, dur in (("b", 9), ("a", 99), ("c", 50))]
    path = trace(*around, launch(5, 1), kernel("k", 10, 1, correlation=1))
    assert [s.label for s in spans(kineto.read([path], "r"), kind="compute")] == ["b"]


def test_a_kernel_that_names_no_launch_is_issued_when_it_starts(trace):
    nameless = event("kernel", "k", 10, 1, device=0, stream=7)
    path = trace(event("user_annotation", "a", 0, 9), event("cuda_runtime", "cudaFree", 2, 1), nameless)
    assert [(s.label, s.issued_ns) for s in spans(kineto.read([path], "r"), kind="compute")] == [("k", 10_000)]


# What becomes of others


def test_traces_as_pytorch_2_0_wrote_them_are_read():
    found = kineto.read([OLD], "old")
    assert [(s.kind, s.kernel, s.stream, s.start_ns, s.end_ns) for s in spans(found) if s.kind != "step"] == [
        ("compute", "gemm", "main", 20_000, 50_000),
        ("all_reduce", "", "21", 50_000, 90_000),
    ]
    assert found.recording.info.started == "2023-07-22T04:26:40"
    assert found.notes == ()


def test_on_a_cpu_operators_that_no_other_called_are_the_kernels():
    found = kineto.read([CPU], "cpu")
    events = json.loads(CPU.read_text())["traceEvents"]
    step = next(e for e in events if e["name"] == "ProfilerStep#3")
    first = spans(found, kind="step")[0]
    assert (first.step, first.end_ns - first.start_ns) == (3, round(step["dur"] * 1000))
    kinds = Counter(s.kernel for s in spans(found, kind="compute", step=3))
    assert (kinds["gemm"], kinds["embedding_lookup"], kinds["embedding_update"]) == (4, 1, 1)
    labels = {s.label for s in spans(found, kind="compute")}
    assert labels == {"forward", "embeddings", "backward", "Optimizer.step#SGD.step"}


def test_gloos_threads_communicate_on_a_stream_of_their_own(trace):
    path = trace(event("cpu_op", "aten::mm", 0, 9), event("user_annotation", "gloo:all_reduce", 3, 20, 5))
    found = spans(kineto.read([path], "r"), stream="gloo")
    assert [(s.kind, s.end_ns - s.start_ns, s.group, s.call) for s in found] == [("all_reduce", 20_000, "", -1)]


def test_a_gzipped_trace_is_read(tmp_path):
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(OLD.read_bytes()))
    assert kineto.read([packed], "r").recording == kineto.read([OLD], "r").recording


# What is around a launch, and what a trace does not say


SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def around(category: str, name: str, ts: float, **args: Any) -> dict[str, Any]:
    return event(category, name, ts, 20, **args)


def test_a_send_and_receive_kernel_is_what_is_around_its_launch(trace):
    noted = {"Collective name": "alltoallv", "In msg nelems": 64, "Out msg nelems": 32, "dtype": "Float"}
    path = trace(
        around("user_annotation", "nccl:all_reduce", 0), launch(5, 1), kernel(SEND_RECV, 100, 10, correlation=1),
        around("cpu_op", "c10d::allgather_", 30), launch(35, 2), kernel(SEND_RECV, 120, 10, correlation=2),
        around("cpu_op", "record_param_comms", 60, **noted), launch(65, 3), kernel(SEND_RECV, 140, 10, correlation=3),
        around("user_annotation", "exchange all_reduce", 90), launch(95, 4), kernel(SEND_RECV, 160, 10, correlation=4),
        launch(115, 5), kernel(SEND_RECV, 180, 10, correlation=5),
    )  # fmt: skip
    profile = kineto.read([path], "r")
    found = [span for span in spans(profile) if span.kind != "step"]
    assert [span.kind for span in found] == [
        "all_reduce", "all_gather_into_tensor", "all_to_all_single", "all_reduce", "all_to_all_single",
    ]  # fmt: skip
    assert [(span.bytes_in, span.bytes_out, span.dtype) for span in found] == [
        (-1, -1, ""), (-1, -1, ""), (256, 128, "float32"), (-1, -1, ""), (-1, -1, ""),
    ]  # fmt: skip
    assert profile.notes == ("t.json: 1 SendRecv kernel without a word for what; taken for all-to-alls",)


def test_payloads_that_a_trace_does_not_state_are_blank_and_nan(trace):
    path = trace(launch(5, 1), kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 100, 10, correlation=1))
    run = Run.of(kineto.read([path], "r").recording)
    assert run.operations[["bytes_in", "bytes_out", "bytes_sent"]].isna().to_numpy().all()
    assert run.ranks["bytes_sent"].isna().all()
    assert "0 B" not in as_text(run_tables.summarize(run))


def test_steps_without_annotations_end_with_their_optimizers(trace):
    events = []
    for step in range(3):
        at = 1000 * step
        events += [
            launch(at + 5, 3 * step + 1), kernel("gemm", at + 10, 100, correlation=3 * step + 1),
            event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", at + 120, 20, tid=2),
            launch(at + 130, 3 * step + 2, tid=2), kernel("gemm", at + 200, 200, correlation=3 * step + 2),
            event("user_annotation", "Optimizer.step#Adam.step", at + 500, 50),
            event("user_annotation", "Optimizer.step#SGD.step", at + 600, 50),
            launch(at + 610, 3 * step + 3), kernel("multi_tensor_apply_kernel", at + 620, 20, correlation=3 * step + 3),
        ]  # fmt: skip
    found = spans(kineto.read([trace(*events)], "r"), kind="step")
    assert [(span.step, span.end_ns - span.start_ns) for span in found] == [(step, 630_000) for step in range(3)]
    one = trace(*events[:8], name="one.json")
    assert [span.step for span in spans(kineto.read([one], "r"), kind="step")] == [0]
