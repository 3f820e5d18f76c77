"""A profiler's traces: what becomes of their events, what is refused in which sentence, and what always holds.

The samples have the fields of real traces of those releases; times and sizes of the GPUs' ones are made up.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reports
from reports.__main__ import main
from reports.errors import ReportError
from reports.kineto import recording as kineto
from reports.kineto import tables as kineto_tables
from reports.kineto.names import collective_kind, kernel_kind, operator_kind
from reports.kineto.recording import Profile
from reports.run import Run
from reports.terminal import run_tables
from reports.terminal.text import as_text
from scenarios.seam.trace import Span
from tests.reports.recordings import PATIENT

SAMPLES = Path(__file__).parents[2] / "data" / "kineto"
GPU = [SAMPLES / "gpu_rank0.json", SAMPLES / "gpu_rank1.json"]
OLD, CPU = SAMPLES / "old_2.0.json", SAMPLES / "cpu_2.13.json"
BASE_NS = 1790857026000000000


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Writes a trace of events into the current folder, so that sentences name the file alone."""
    monkeypatch.chdir(tmp_path)

    def write(*events: dict[str, Any], name: str = "t.json", **about: Any) -> Path:
        Path(name).write_text(json.dumps({**about, "traceEvents": events}), encoding="utf-8")
        return Path(name)

    return write


@pytest.fixture(scope="module")
def gpus() -> Profile:
    return kineto.read(GPU, "gpus")


def event(category: str, name: str, ts: float, dur: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, *, stream: int = 7, correlation: int = 0, **args: Any) -> dict[str, Any]:
    return event("kernel", name, ts, dur, stream, device=0, stream=stream, correlation=correlation, **args)


def launch(ts: float, correlation: int, tid: int = 1) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid, correlation=correlation)


def spans(profile: Profile, **wanted: Any) -> list[Span]:
    found = [s for s in profile.recording.spans if all(getattr(s, key) == value for key, value in wanted.items())]
    return sorted(found, key=lambda span: span.start_ns)


def refused(*paths: Path) -> list[str]:
    with pytest.raises(ReportError) as caught:
        kineto.read(paths, "r")
    return str(caught.value).split("\n")


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


def test_what_torch_noted_on_the_cpu_fills_in_what_a_kernel_does_not_say(gpus):
    reductions = spans(gpus, kind="all_reduce", rank=1)
    assert [(s.bytes_in, s.dtype, s.group, s.call) for s in reductions] == [
        (8192, "bfloat16", "0", 1),
        (8192, "bfloat16", "0", 3),
    ]


def test_a_communication_is_waited_for_from_where_its_rank_computes_no_more(gpus):
    exchange = spans(gpus, kind="all_to_all_single", rank=0, step=5)[0]
    assert (exchange.wait_from_ns, exchange.wait_until_ns) == (exchange.start_ns, exchange.end_ns)


def test_a_communication_behind_which_something_computes_is_not_waited_for(trace):
    path = trace(kernel("gemm", 0, 50), kernel("ncclDevKernel_AllReduce_Sum_f32", 10, 20, stream=9))
    assert spans(kineto.read([path], "r"), kind="all_reduce")[0].wait_until_ns == -1


def test_a_communication_that_outlasts_the_computing_is_waited_for_from_there(trace):
    path = trace(kernel("gemm", 0, 50), kernel("ncclDevKernel_AllReduce_Sum_f32", 10, 60, stream=9))
    found = spans(kineto.read([path], "r"), kind="all_reduce")[0]
    assert (found.wait_from_ns, found.wait_until_ns) == (50_000, 70_000)


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
    assert "2 kernels outside any step" in as_text(kineto_tables.summarize(found))


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
    assert kineto_tables.without_annotation(found)["share_of_kernels"] == pytest.approx(2 / 3)


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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_relu>(int)", "gemm"),
        ("Cijk_Ailk_Bjlk_SB_MT64x16", "gemm"),
        ("void at::native::reduce_kernel<512, 1, at::native::MeanOps<float>>(int)", "reduction"),
        ("void at::native::elementwise_kernel<at::native::softmax>(int)", "elementwise"),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>(int)", "optimizer"),
        ("void split_embedding_backward_codegen_adagrad_kernel_cta_per_row_1<float>", "embedding_update"),
        ("void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float>", "embedding_lookup"),
        ("void fbgemm_gpu::_block_bucketize_sparse_features_cuda_kernel2<false>(int)", "bucketize"),
        ("void fbgemm_gpu::linearize_index_kernel<long>(int)", "other"),
        ("void permute_pooled_embs_kernel<float>(float const*)", "permute"),
        ("void geqr2_smem<float, float, 8, 6>(int)", "qr"),
        ("triton_per_fused_native_layer_norm_3", "reduction"),
    ],
)  # fmt: skip
def test_a_kernels_name_tells_its_kind(name, kind):
    assert kernel_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "gemm"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "gemm"),
        ("autograd::engine::evaluate_function: EmbeddingBagBackward0", "embedding_update"),
        ("aten::normal_", "other"),
        ("aten::add_", "elementwise"),
        ("aten::linalg_qr", "qr"),
    ],
)
def test_an_operators_name_tells_its_kind(name, kind):
    assert operator_kind(name) == kind


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("allreduce_coalesced", "all_reduce_coalesced"), ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather_into_tensor"),
        ("_reduce_scatter_base", "reduce_scatter_tensor"), ("all_to_allv", "all_to_all_single"), ("send", "send"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter_tensor"), ("broadcast", "broadcast"),
        ("ncclDevKernel_SendRecv", "all_to_all_single"), ("ncclDevKernel_Generic", "collective"),
    ],
)  # fmt: skip
def test_a_collectives_name_tells_its_verb(name, verb):
    assert collective_kind(name) == verb


# Several ranks


def test_clocks_are_common_where_traces_say_when_they_began(trace):
    paths = [
        trace(kernel("a", 5, 1), name=f"rank{n}.json", baseTimeNanoseconds=BASE_NS + 1000 * n, host_name=f"h{n}")
        for n in (0, 1)
    ]
    found = kineto.read(paths, "r")
    assert [s.start_ns for s in spans(found, kind="compute")] == [0, 1000]
    assert found.notes == ("traces of 2 hosts: their clocks agree as well as the hosts kept them",)
    assert found.recording.info.hosts == ("h0", "h1")


def test_clocks_that_are_not_common_are_said(trace):
    paths = [trace(kernel("a", 5 + 90 * n, 1), name=f"rank{n}.json") for n in (0, 1)]
    found = kineto.read(paths, "r")
    assert [s.start_ns for s in spans(found, kind="compute")] == [0, 0]
    assert found.notes[0].startswith("clocks not aligned: ")


def test_ranks_of_a_larger_world_are_said(trace):
    path = trace(kernel("a", 5, 1), distributedInfo={"rank": 3, "world_size": 8})
    found = kineto.read([path], "r")
    assert spans(found, kind="step")[0].rank == 3
    assert found.notes == ("only rank 3 of a world of 8: the others' waiting and bytes are not in the run",)


def reduction(ts: float, ranks: str, name: str = "1", kind: str = "allreduce") -> dict[str, Any]:
    about = {"Collective name": kind, "Process Group Name": name, "Process Group Ranks": ranks}
    return kernel("ncclDevKernel_AllReduce_Sum_f32", ts, 1, **about)


def test_groups_of_one_name_are_told_apart_by_their_ranks(trace):
    paths = [trace(reduction(1, f"[{n}, 9]"), name=f"rank{n}.json", baseTimeNanoseconds=BASE_NS) for n in (0, 1)]
    assert [s.group for s in kineto.read(paths, "r").recording.spans if s.kind != "step"] == ["1 [0, 9]", "1 [1, 9]"]


def test_calls_that_members_count_differently_are_not_linked(trace):
    paths = [
        trace(*(reduction(10 * at, "[0, 1]") for at in range(2 + n)), name=f"rank{n}.json", baseTimeNanoseconds=BASE_NS)
        for n in (0, 1)
    ]
    found = kineto.read(paths, "r")
    assert {s.call for s in spans(found, kind="all_reduce")} == {-1}
    assert found.notes == (
        "group 1: not as many calls on all ranks (2 on rank 0, 3 on rank 1); they are not linked",
    )  # fmt: skip


def test_a_send_is_no_call_and_brings_nothing_back(trace):
    about = {"In msg nelems": 8, "Out msg nelems": 8, "dtype": "Half", "Process Group Name": "0"}
    path = trace(kernel("ncclDevKernel_SendRecv", 0, 1, **{"Collective name": "send"}, **about))
    (sent,) = spans(kineto.read([path], "r"), kind="send")
    assert (sent.call, sent.bytes_in, sent.bytes_out, sent.bytes_sent) == (-1, 16, 0, 16)


# What is refused


def test_what_is_no_trace_is_refused_in_a_sentence_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no JSON")
    Path("other").write_text('{"a": 1}')
    Path("list").write_text("[1]")
    Path("empty").write_text('{"traceEvents": [{"ph": "M"}, 7, {"ph": "X", "cat": []}]}')
    Path("cut.gz").write_bytes(gzip.compress(OLD.read_bytes())[:100])
    Path("deep").write_text("[" * 100_000)
    assert refused(Path("text")) == [
        "text: not JSON: Expecting value: line 1 column 1 (char 0); expected a trace of torch.profiler"
    ]
    sentence = "no traceEvents; expected a trace of torch.profiler (export_chrome_trace)"
    assert refused(Path("other"), Path("list"), Path("none")) == [
        f"other: {sentence}",
        f"list: {sentence}",
        "none: could not be read: No such file or directory",
    ]
    assert refused(Path("empty")) == [
        "empty: neither kernels nor CPU operators; expected events of category kernel or cpu_op"
    ]
    assert refused(Path("cut.gz"))[0].startswith("cut.gz: not readable as gzip: ")
    assert refused(Path("deep"))[0].startswith("deep: not JSON: ")


def test_the_same_rank_twice_is_refused(trace):
    one = trace(kernel("a", 5, 1), name="one.json", distributedInfo={"rank": 0})
    two = trace(kernel("a", 5, 1), name="two.json", distributedInfo={"rank": 0})
    assert refused(one, two) == ["two.json: rank = 0: that of one.json, too; expected one trace a rank"]


@pytest.mark.parametrize("value", ["soon", None, True, 1e300, float("nan"), 10**400, -(10**16)])
def test_a_time_that_is_none_is_refused(trace, value):
    sentence = refused(trace({**kernel("a", 5, 1), "ts": value}))[0]
    assert sentence.startswith("t.json: traceEvents[0].ts = ")
    assert sentence.endswith(": expected a time in us")


def test_negative_durations_are_left_out_and_counted(trace):
    found = kineto.read([trace(kernel("a", 5, -1), kernel("b", 5, 1))], "r")
    assert found.notes == ("t.json: 1 event of negative duration left out",)
    assert [s.label for s in spans(found, kind="compute")] == ["b"]


# The command


def test_the_command_writes_a_run_that_is_shown(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["kineto", *map(str, GPU), "--out", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "32 kernels, 37.5 % of them without annotation" in printed.out
    assert max(map(len, printed.out.splitlines()[:-1])) <= 80
    info = reports.load(folder).info
    assert (info.world, info.played_on, info.world_size) == ("real", "a profiler's trace", 2)
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out.startswith("run: measured, 2 ranks on 1 host, library nccl\nstep time 887 us")


def test_json_is_json(tmp_path, capsys):
    assert main(["kineto", str(CPU), "--out", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"run", "notes", "annotation", "by_kind", "by_label", "top_kernels"}
    assert sum(row["share"] for row in found["by_label"]) == pytest.approx(1)


def test_a_taken_folder_is_refused(tmp_path, capsys):
    assert main(["kineto", str(CPU), "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_odd_letters_and_numbers_of_a_trace_reach_the_folder(trace, capsys):
    odd = {
        "Collective name": 7,
        "In msg nelems": 10**30,
        "Group size": "x",
        "dtype": [],
        "Process Group Name": "\ud800",
    }
    path = trace(kernel("[red]\ud800", 0, 0), kernel("ncclKernel", 0, 1, **odd), host_name=None)
    assert main(["kineto", str(path), "--out", "run"]) == 0
    assert "[red]?" in capsys.readouterr().out
    assert main(["run"]) == 0


# Laws

_MOMENTS = st.integers(0, 50_000).map(lambda ns: ns / 1000)


@st.composite
def _events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Any kernels, launched or not, under any annotations, in steps or not."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from(["gemm", "copy", "ncclDevKernel_AllReduce_Sum_f32", "ncclDevKernel_SendRecv"]))
        about = {"Process Group Name": "0", "In msg nelems": draw(st.integers(0, 9)), "dtype": "Float"}
        stream = draw(st.sampled_from([7, 8, 20]))
        correlation = draw(st.integers(0, number))
        found.append(kernel(name, draw(_MOMENTS), draw(_MOMENTS), stream=stream, correlation=correlation, **about))
    found += [launch(draw(_MOMENTS), number, draw(st.integers(1, 2))) for number in range(draw(st.integers(0, 9)))]
    for _ in range(draw(st.integers(0, 5))):
        name = draw(st.sampled_from(["a", "b", "nccl:x", "ProfilerStep#1", "ProfilerStep#2"]))
        found.append(event("user_annotation", name, draw(_MOMENTS), draw(_MOMENTS), draw(st.integers(1, 2))))
    return found


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("laws") / "t.json"


def read_events(scratch: Path, events: list[dict[str, Any]]) -> Profile:
    scratch.write_text(json.dumps({"traceEvents": events}))
    return kineto.read([scratch], "r")


@PATIENT
@given(events=_events(), seed=st.integers(0, 99))
def test_the_order_of_events_does_not_matter(scratch, events, seed):
    shuffled = random.Random(seed).sample(events, len(events))
    assert read_events(scratch, shuffled).recording == read_events(scratch, events).recording


@PATIENT
@given(events=_events())
def test_every_kernels_time_is_kept_whole_in_one_span(scratch, events):
    found = read_events(scratch, events)
    kept = sum(s.end_ns - s.start_ns for s in found.recording.spans if s.kind != "step")
    assert kept == sum(round(e["dur"] * 1000) for e in events if e["cat"] == "kernel")
    assert all(s.issued_ns <= s.start_ns <= s.end_ns for s in found.recording.spans)


@PATIENT
@given(events=_events())
def test_a_step_holds_all_of_its_kernels(scratch, events):
    found = read_events(scratch, events)
    bounds = {s.step: (s.start_ns, s.end_ns) for s in spans(found, kind="step")}
    for span in found.recording.spans:
        if span.step >= 0:
            assert bounds[span.step][0] <= span.start_ns <= span.end_ns <= bounds[span.step][1]


@PATIENT
@given(events=_events())
def test_shares_of_kinds_and_of_labels_add_up_to_all_time_in_steps(scratch, events):
    found = read_events(scratch, events)
    inside = sum(p.end_ns - p.start_ns for p in found.pieces if p.step >= 0)
    for frame in kineto_tables.tables(found).values():
        assert frame["share"].sum() == pytest.approx(1 if inside else 0)


@PATIENT
@given(events=_events(), shift_us=st.integers(-1000, 10**12))
def test_when_a_trace_began_changes_nothing(scratch, events, shift_us):
    moved = [{**e, "ts": e["ts"] + shift_us} for e in events]
    there, here = read_events(scratch, moved), read_events(scratch, events)
    assert [(p.step, p.label, p.stream, p.kind) for p in there.pieces] == [
        (p.step, p.label, p.stream, p.kind) for p in here.pieces
    ]


def test_half_letters_anywhere_in_a_trace_become_question_marks(tmp_path):
    """Lone surrogates, which JSON can write and UTF-8 cannot."""
    text = (Path(__file__).parents[2] / "data" / "kineto" / "gpu_rank0.json").read_text()
    path = tmp_path / "trace.json"
    path.write_text(text.replace('"dtype": "Float"', '"dtype": "\\ud800"').replace('"name": "', '"name": "\\udfff'))
    assert main(["kineto", str(path), "--out", str(tmp_path / "run")]) == 0
    assert reports.load(tmp_path / "run").spans["label"].str.startswith("?").any()


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
