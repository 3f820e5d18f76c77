"""nccl-tests' output: what is read of four of its formats, what is refused in which sentence, and what comes of it.

The samples have the layout of nccl-tests' releases; their times are made up.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.errors import ReportError
from reports.nccl import nccl_tests
from reports.nccl.nccl_tests import RunHeader
from reports.published import collectives
from reports.published.collectives import Prediction, PublishedRow
from reports.published.errors import center, collective_errors, nccl_profiles
from reports.sections.published import COLLECTIVES, PublishedView
from reports.terminal.render import render_report
from reports.terminal.text import as_text
from scenarios.config.load import load_profile
from tests.reports.published.rows import MIB, row, stand_in
from tests.reports.recordings import PATIENT
from tests.reports.refusals import refusal
from twinstep.reporting.cli import main

SAMPLES = Path(__file__).parents[2] / "data" / "nccl_tests"
NEW, BLANK, OLD, TWO = (
    SAMPLES / f"{name}.txt" for name in ("all_reduce_2.18", "alltoall_2.13", "all_gather_2019", "two_runs_2.19_srun")
)
HEAD = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong"
ROW = "  16777216  4194304  float  sum  -1  204.6  82.00  143.50  0  202.5  82.83  144.95  0"
ALL = RunHeader(op="all_reduce", gpu="H100", nodes=2, gpus_per_node=4)


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Writes a file of the current folder, so that sentences name it alone."""
    monkeypatch.chdir(tmp_path)

    def write(*lines: str, name: str = "m.txt") -> Path:
        Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Path(name)

    return write


def refuse(path: Path, given: RunHeader = nccl_tests.NOTHING) -> list[str]:
    return refusal(nccl_tests.read, path, given).split("\n")


def words(shown: str) -> str:
    """Without the ends of lines."""
    return " ".join(shown.split())


def device(rank: int, host: str, gpu: str = "NVIDIA H100 80GB HBM3", group: int = 0) -> str:
    return f"#  Rank {rank:2d} Group {group:2d} Pid {4100 + rank:6d} on {host:>10} device  0 [0000:1b:00] {gpu}"


def test_a_row_has_what_header_and_table_say():
    found = nccl_tests.read(NEW)
    assert found.notes == ()
    assert found.rows[2] == PublishedRow(
        file=str(NEW), line=24, source="all_reduce_2.18.txt", op="all_reduce", library="nccl", gpu="H100", nodes=2,
        gpus_per_node=4, size_bytes=16 * MIB, link_gbit_per_s=None, one_way_delay_ms=None, time_us=204.6,
        quality="nccl-tests 2.18.2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "given", "ran", "times"),
    [
        (NEW, RunHeader(), ("H100", 2, 4), {MIB: 61.52, 4 * MIB: 97.31, 16 * MIB: 204.6, 64 * MIB: 612.4,
            256 * MIB: 2290.8}),
        (BLANK, RunHeader(), ("A100", 2, 8), {MIB: 84.27, 4 * MIB: 142.6, 16 * MIB: 402.1, 512 * MIB: 10804.0}),
        (OLD, RunHeader(op="all_gather"), ("V100", 1, 8), {0: 57.3, MIB: 71.04, 16 * MIB: 161.9}),
    ],
)  # fmt: skip
def test_the_out_of_place_time_is_found_in_every_format(path, given, ran, times):
    rows = nccl_tests.read(path, given).rows
    assert {(row.gpu, row.nodes, row.gpus_per_node) for row in rows} == {ran}
    assert {row.size_bytes: row.time_us for row in rows} == times


def test_a_log_may_hold_several_runs_and_labels():
    rows = nccl_tests.read(TWO).rows
    assert [(row.op, row.line, row.size_bytes, row.time_us) for row in rows] == [
        ("reduce_scatter", 15, 16 * MIB, 211.55),
        ("reduce_scatter", 16, 64 * MIB, 660.4),
        ("send_recv", 36, 16 * MIB, 380.12),
        ("send_recv", 37, 64 * MIB, 1455.9),
    ]
    assert {(row.gpu, row.nodes, row.gpus_per_node, row.quality) for row in rows} == {
        ("B200", 2, 2, "nccl-tests 2.19.6")
    }


def test_the_command_names_the_operation_where_no_header_does(log):
    text = BLANK.read_text().split("\n")
    assert {row.op for row in nccl_tests.read(log(*text)).rows} == {"all_to_all"}
    assert refuse(log(*text[1:])) == [
        "m.txt: line 22: no line above names the operation; expected --op, one of all_reduce, all_gather,"
        " reduce_scatter, broadcast, all_to_all, send_recv"
    ]


def test_a_table_alone_needs_the_options(log):
    path = log(HEAD, ROW)
    (row,) = nccl_tests.read(path, ALL).rows
    assert (row.op, row.gpu, row.nodes, row.gpus_per_node) == ("all_reduce", "H100", 2, 4)
    assert refuse(path, RunHeader(gpu="H100", nodes=2)) == [
        "m.txt: line 1: no line above names the operation; expected --op, one of all_reduce, all_gather,"
        " reduce_scatter, broadcast, all_to_all, send_recv",
        "m.txt: line 1: no line above lists the ranks; expected all ranks above, or --nodes and --gpus-per-node",
    ]
    found = nccl_tests.read(path, RunHeader(op="all_reduce", nodes=2, gpus_per_node=4))
    assert (found.rows[0].gpu, found.notes) == (
        "", ("m.txt: line 1: no line above names the GPU; --gpu or --profile says it",)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"nodes": 1}, "busbw is 1.75 times size / time; expected 1.5, as of all_reduce on 1 x 4 GPUs"),
        ({"op": "all_gather"}, "busbw is 1.75 times size / time; expected 0.875, as of all_gather on 2 x 4 GPUs"),
        ({"op": "send_recv"}, "busbw is 1.75 times size / time; expected 1, as of send_recv on 2 x 4 GPUs"),
    ],
)
def test_the_bus_bandwidth_gives_wrong_options_away(log, given, sentence):
    said = {"op": "all_reduce", "nodes": 2, "gpus_per_node": 4} | given
    assert refuse(log(HEAD, ROW), RunHeader(**said)) == [f"m.txt: line 2: {sentence}"]


def test_header_values_override_options_with_a_note(log):
    path = log(*NEW.read_text().split("\n"))
    found = nccl_tests.read(path, RunHeader(op="broadcast", gpu="A100", nodes=2, gpus_per_node=8))
    assert {(row.op, row.gpu, row.gpus_per_node) for row in found.rows} == {("all_reduce", "H100", 4)}
    assert found.notes == (
        "m.txt: line 19: the header says all_reduce, not --op broadcast, which is not used for it",
        "m.txt: line 19: the header says H100, not --gpu A100, which is not used for it",
        "m.txt: line 19: the header says 2 x 4 GPUs, so --nodes and --gpus-per-node are not used for it",
    )
    assert nccl_tests.read(path, ALL).notes == ()


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        (
            [device(0, "a"), device(0, "b")],
            "line 2: rank 0 stands here more than once: nccl-tests was built without MPI, and each process measured"
            " itself",
        ),
        (
            [device(0, "a"), device(1, "a"), device(0, "b", group=1).replace("Rank  0", "Rank  2")],
            "line 2: several groups at once; expected one of all ranks (no NCCL_TESTS_SPLIT)",
        ),
        (
            [device(0, "a"), device(7, "a"), device(8, "b")],
            "line 5: ranks 1-6 not listed; expected all ranks above, or --nodes and --gpus-per-node",
        ),
        (
            [device(0, "a"), device(1, "a"), device(2, "b")],
            "line 5: hosts of 1, 2 GPUs; expected all ranks above, or --nodes and --gpus-per-node",
        ),
        ([device(0, "a"), device(1, "a", "NVIDIA A100-SXM4-40GB")], "line 2: GPUs A100, H100; expected one kind"),
    ],
)
def test_ranks_that_do_not_say_where_they_are_are_one_sentence(log, ranks, sentence):
    assert refuse(log("# Collective test starting: all_reduce_perf", *ranks, HEAD, ROW)) == [f"m.txt: {sentence}"]


def test_ranks_that_are_not_all_listed_can_be_said(log):
    path = log("# Collective test starting: all_reduce_perf", device(0, "a"), device(7, "b"), HEAD, ROW)
    (row,) = nccl_tests.read(path, RunHeader(nodes=2, gpus_per_node=4)).rows
    assert (row.gpu, row.nodes, row.gpus_per_node) == ("H100", 2, 4)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("Tesla V100-SXM3-32GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GH200 120GB", "GH200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_gpu_is_called_by_its_models_word(log, name, word):
    ranks = [device(rank, "a", name) for rank in range(8)]
    rows = nccl_tests.read(log("# Collective test starting: all_reduce_perf", *ranks, HEAD, ROW)).rows
    assert rows[0].gpu == word


def test_unusual_lines_are_noted(log):
    path = log(
        "# Collective test starting: all_reduce_perf",
        "# nThread 1 nGpus 8 minBytes 16777216 maxBytes 16777216 step: 2(factor) iters: 20 agg iters: 4",
        *(device(rank, "a", "NVIDIA H100 PCIe") for rank in range(8)),
        HEAD,
        ROW,
        "# Out of bounds values : 3 FAILED",
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8",
        device(0, "a"),
    )
    assert nccl_tests.read(path).notes == (
        "m.txt: line 3: NVIDIA H100 PCIe: taken as H100, but a profile with NVLink does not fit",
        "m.txt: line 1: agg iters: 4: a time is that of one of so many, launched together",
        "m.txt: line 1: 3 values out of bounds: results were wrong in this run",
        "m.txt: line 14: a run without rows",
    )


def test_every_mistake_of_every_file_is_said(log):
    cut = ROW.rsplit(maxsplit=3)[0]
    one = log(HEAD, cut, ROW.replace("204.6", "  N/A"), ROW.replace("204.6", " 0.00"), ROW)
    none, bad = log(HEAD, name="n.txt"), log("a,b", name="bad.csv")
    big = log(HEAD, ROW.replace("16777216", "1677721600000000"), name="big.txt")
    cpu = log(HEAD.replace("time", "cputime"), ROW, name="cpu.txt")
    assert refusal(nccl_tests.read_files, [one, none, bad, big, cpu], ALL).split("\n") == [
        "m.txt: line 2: 10 values; expected 13, as in the head, line 1",
        "m.txt: line 3: time = 'N/A': expected a number above 0",
        "m.txt: line 4: time = '0.00': expected a number above 0",
        "n.txt: no measurements; expected rows below the head of nccl-tests' table",
        "bad.csv: first line: source, op, library, nodes, gpus_per_node, size_bytes, time_us: missing; expected source,"
        " op, library, gpu, nodes, gpus_per_node, size_bytes, link_gbit_per_s, one_way_delay_ms, time_us, quality,"
        " launch_us, with commas between them",
        "big.txt: line 2: size = 1677721600000000: expected at most 15 digits",
        "cpu.txt: line 1: columns size, count, type, redop, root…cputime, algbw, busbw, #wrong: expected time and"
        " busbw among them (no option -C)",
    ]


def test_a_row_whose_first_half_is_blank_is_refused(log):
    words = ROW.split()
    assert refuse(log(HEAD, " ".join(words[:5] + words[9:])), ALL) == [
        "m.txt: line 2: 9 values; expected 13, as in the head, line 1"
    ]


@PATIENT
@given(
    size=st.integers(1, 2**36),
    us=st.floats(1.0, 1e6).map(lambda us: round(us, 2)),
    op=st.sampled_from(sorted(nccl_tests.OPERATIONS)),
    shape=st.tuples(st.integers(1, 64), st.integers(1, 8)),
    left=st.sampled_from([(), ("redop",), ("root",), ("redop", "root")]),
    blank=st.booleans(),
    noise=st.lists(st.text("# \t:[]0123456789abcNIFO.%", max_size=30), max_size=3),
)
def test_a_printed_row_is_read_back(tmp_path_factory, size, us, op, shape, left, blank, noise):
    nodes, gpus = shape
    ranks = nodes * gpus
    factors = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0, "sendrecv": 1.0}
    bus = size / us / 1e3 * factors.get(op, (ranks - 1) / ranks)
    half = f"{us:.2f} {size / us / 1e3:.2f} {bus:.2f} 0"
    middle = [] if blank else [{"redop": "sum", "root": "-1"}[name] for name in left]
    noise = [line for line in noise if not re.match(r"\s*(\d+:\s+)?\d+\s+\d+\s+[a-z]", line)]
    path = tmp_path_factory.mktemp("any") / "log"
    lines = [
        f"$ mpirun {op}_perf -b 8",
        *(device(rank, f"host{rank // gpus}") for rank in range(ranks)),
        " ".join(["# size count type", *left, "time algbw busbw #wrong", "time algbw busbw #wrong"]),
        *noise,
        " ".join([str(size), "1", "float", *middle, half, half]),
    ]
    path.write_text("\n".join(lines))
    (row,) = nccl_tests.read_files([path]).rows
    assert (row.op, row.gpu, row.nodes, row.gpus_per_node, row.size_bytes, row.time_us, row.line) == (
        nccl_tests.OPERATIONS[op], "H100", nodes, gpus, size, us, len(lines)
    )  # fmt: skip


@PATIENT
@given(
    path=st.sampled_from([NEW, BLANK, OLD, TWO]),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 80), st.text(max_size=5)), max_size=4),
)
def test_a_damaged_log_is_read_or_refused_with_sentences(tmp_path_factory, path, cuts):
    text = path.read_text()
    for share, length, instead in cuts:
        place = int(share * len(text))
        text = text[:place] + instead + text[place + length :]
    damaged = tmp_path_factory.mktemp("any") / "log"
    damaged.write_text(text, encoding="utf-8")
    rows, sentences = [], []
    try:
        rows = list(nccl_tests.read(damaged, RunHeader(op="all_gather")).rows)
    except ReportError as error:
        sentences = str(error).split("\n")
    assert bool(rows) != bool(sentences)
    assert all(re.match(r"\S+/log: (line \d+|no measurements)", sentence) for sentence in sentences)
    assert all(row.time_us > 0 and row.nodes >= 1 and row.gpus_per_node >= 1 for row in rows)


def test_csv_and_output_are_told_apart_by_content(log):
    columns = [name for name in PublishedRow.__slots__ if name not in ("file", "line")]
    csv = log(",".join(columns), "s,all_reduce,nccl,A100,1,8,1024,,,20,,", name="m.txt")
    text = log(*NEW.read_text().split("\n"), name="m.csv")
    found = nccl_tests.read_files([csv, text])
    assert [row.source for row in found.rows] == ["s"] + 5 * ["m.csv"]
    assert not nccl_tests.is_output(Path("none"))
    assert refusal(nccl_tests.read_files, [Path("none")]) == "none: could not be read: No such file or directory"
    assert refusal(nccl_tests.read_files, [csv], RunHeader(op="all_reduce", gpus_per_node=8)) == (
        "--op, --gpus-per-node: no file is nccl-tests' output; a CSV file says it in its columns"
    )


@pytest.fixture
def asked(monkeypatch):
    """Stands for the simulator's door: every operation takes 300 us with dgx_h100."""
    said = {"predicted_us": 300.0, "formula_us": None, "protocol": "Simple", "profile": "dgx_h100"}
    return stand_in(monkeypatch, lambda given: said)


def test_the_command_reads_output_and_says_what_would_centre_it(log, asked, capsys):
    own = load_profile("dgx_h100").nccl_efficiency
    assert main(["published", str(NEW)]) == 0
    shown, complaint = capsys.readouterr()
    assert complaint == ""
    assert asked[0]["gpus_per_node"] == 4
    # 300 us against 204.6, 612.4 and 2290.8 us
    wanted = own * 300 / 612.4
    assert words(shown).endswith(
        f"nccl_efficiency = {wanted:.3g} in a profile of your own would centre the 3 rows of 16 MiB and more"
        f" (dgx_h100 has {own:.3g})"
    )
    assert main(["published", str(NEW), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["centred"]
    assert found == {
        "profile": "dgx_h100", "rows": 3, "present": own, "nccl_efficiency": pytest.approx(wanted), "left": 0.0
    }  # fmt: skip


def test_the_command_takes_options_for_what_no_header_says(log, asked, capsys):
    path = str(log(HEAD, ROW))
    options = ["--op", "all_reduce", "--gpu", "H100", "--nodes", "2", "--gpus-per-node", "4"]
    assert main(["published", path, *options]) == 0
    assert "nccl_efficiency" not in capsys.readouterr().out  # of one row
    assert (asked[0]["op"], asked[0]["gpu"], asked[0]["nodes"], asked[0]["gpus_per_node"]) == (
        "all_reduce", "H100", 2, 4
    )  # fmt: skip
    assert main(["published", path]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
    with pytest.raises(SystemExit) as caught:
        main(["published", path, "--nodes", "0"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith("--nodes: '0': expected a whole number from 1 to 1,000,000\n")


def measure(us: float, size_bytes: int = 16 * MIB, library: str = "nccl") -> PublishedRow:
    return row(time_us=us, size_bytes=size_bytes, library=library)


def at(efficiency: float, bytes_us: float = 100.0) -> collectives.Predict:
    def predict(row: PublishedRow, profile: str | None) -> Prediction:
        return Prediction(
            predicted_us=bytes_us / efficiency, formula_us=None, algorithm="", protocol="", profile="p"
        )  # fmt: skip

    return predict


@PATIENT
@given(times=st.lists(st.floats(50.0, 5000.0), min_size=3, max_size=9), own=st.floats(0.2, 1.0))
def test_with_the_efficiency_that_centres_the_signed_median_is_none(times, own):
    rows = [measure(us) for us in times] + [measure(1.0, MIB)]
    joined = collectives.join(rows, at(own))
    assert nccl_profiles(joined) == ["p"]
    ((_, count, present, efficiency, left),) = center(joined, {"p": own}).itertuples(index=False)
    assert (count, present) == (len(times), own)
    assert 0 < efficiency <= 1
    again = collective_errors(collectives.join(rows, at(efficiency)))["in_all"]
    assert again["signed_median"][1] == pytest.approx(left, abs=1e-9)
    assert left == pytest.approx(0, abs=1e-9) or efficiency == 1


def test_an_efficiency_above_1_is_not_offered():
    joined = collectives.join([measure(80.0) for _ in range(3)], at(1.0))
    assert words(as_text(render_report(COLLECTIVES, PublishedView(joined=joined, present={"p": 1.0})))).endswith(
        "p: no nccl_efficiency would centre the 3 rows of 16 MiB and more: at 1 their median error is still +25.0 %"
    )


@pytest.mark.parametrize(
    "rows",
    [
        [measure(90.0), measure(90.0), measure(90.0, MIB)],
        [measure(90.0), measure(90.0), measure(90.0), measure(90.0, library="gloo")],
    ],
)
def test_few_large_rows_or_gloos_say_nothing_of_nccls_efficiency(rows):
    assert nccl_profiles(collectives.join(rows, at(1.0))) == []
