"""Logs to a profile: the figures that made the rows are found back, and what rows cannot tell is said."""

from __future__ import annotations

import dataclasses
import json
import random
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from reports.nccl import fit_tables as nccl_fit_tables
from reports.nccl import profile as nccl_profile
from reports.nccl.fit import Figures, Fit, fit
from reports.published.collectives import PublishedRow
from reports.sections.calibration import NCCL_FIT, FitView
from reports.terminal.render import render_report
from reports.terminal.text import WIDTH, as_text
from scenarios.config.catalogue import profile_file, profile_names
from scenarios.config.load import load, load_measured, load_profile
from scenarios.workloads.build import build
from sim.run import simulate
from tests.reports.published.rows import MIB, row
from tests.reports.recordings import PATIENT
from tests.reports.refusals import refusal
from twinstep.published.simulated import predict
from twinstep.reporting.cli import main
from twinstep.scenario_files import main as scenarios_main

KIB = 2**10
SIZES = (KIB, *(2**k * KIB for k in range(2, 9)), MIB, *(2**k * MIB for k in range(4, 11)))
DGX = Figures(nccl_efficiency=0.96, nccl_start_ns=32_000, nccl_p2p_share=0.88)
SAMPLES = Path(__file__).parents[2] / "data" / "nccl_tests"
PUBLISHED = Path(__file__).parents[2] / "data" / "published" / "collectives.csv"


def by_hand(one: PublishedRow, figures: Figures) -> float:
    """A model as simple as the simulator's own on an idle cluster, at 100 GB/s; between nodes no NVLink decides."""
    bytes_us = one.size_bytes / 1e5 / figures.nccl_efficiency
    if one.op == "all_to_all":
        return 8.0 + bytes_us / (figures.nccl_p2p_share if one.nodes == 1 else 0.5)
    return 10.0 + bytes_us + figures.nccl_start_ns / 1e3 * min(1.0, one.size_bytes / (640 * KIB)) ** 0.4


def measure(
    figures: Figures,
    ops: Sequence[str] = ("all_reduce", "all_to_all"),
    model: Callable[[PublishedRow, Figures], float] = by_hand,
    sizes: Sequence[int] = SIZES,
    nodes: int = 1,
) -> list[PublishedRow]:
    rows = [
        row(file="logs/m.txt", source="m.txt", op=op, size_bytes=size, nodes=nodes, line=line)
        for op in ops
        for line, size in enumerate(sizes)
    ]
    return [dataclasses.replace(one, time_us=model(one, figures)) for one in rows]


FIGURES = st.builds(
    Figures,
    nccl_efficiency=st.floats(0.3, 1.0),
    nccl_start_ns=st.integers(2_000, 80_000),
    nccl_p2p_share=st.floats(0.3, 1.0),
)


def same(one: Figures, two: Figures, within: float = 2e-3) -> bool:
    return dataclasses.astuple(one) == pytest.approx(dataclasses.astuple(two), rel=within)


@PATIENT
@given(true=FIGURES, present=FIGURES)
def test_the_figures_that_made_the_rows_are_found_from_any_others(true, present):
    found = fit(measure(true), present, by_hand)
    assert same(found.figures, true)
    assert max(abs(one.after) for one in found.held_out) < 2e-3
    assert found.notes == ()


@cache
def simulate_row(one: PublishedRow, figures: Figures) -> float:
    return predict(
        op=one.op, library="nccl", gpu="", nodes=one.nodes, gpus_per_node=one.gpus_per_node,
        size_bytes=one.size_bytes, profile="dgx_h100", figures=dataclasses.asdict(figures),
    ).predicted_us  # fmt: skip


@pytest.mark.parametrize(
    "true",
    [
        Figures(nccl_efficiency=0.55, nccl_start_ns=71_000, nccl_p2p_share=0.97),
        Figures(nccl_efficiency=1.0, nccl_start_ns=4_000, nccl_p2p_share=0.41),
    ],
)
def test_the_simulators_own_rows_give_its_figures_back(true):
    found = fit(measure(true, model=simulate_row), DGX, simulate_row)
    assert same(found.figures, true)
    assert max(abs(one.after) for one in found.held_out) < 5e-3


@PATIENT
@given(true=FIGURES, seed=st.integers(0, 2**32))
def test_noise_and_a_few_wild_rows_move_a_figure_little(true, seed):
    chance, wild = random.Random(seed), 256 * MIB
    sizes = [2**k * KIB for k in range(2, 9)] + [2**k * MIB for k in range(4, 14)]
    rows = [
        dataclasses.replace(one, time_us=one.time_us * (5 if one.size_bytes == wild else chance.uniform(0.99, 1.01)))
        for one in measure(true, sizes=sizes)
    ]
    found = fit(rows, DGX, by_hand).figures
    assert found.nccl_efficiency == pytest.approx(true.nccl_efficiency, rel=0.03)
    assert found.nccl_p2p_share == pytest.approx(true.nccl_p2p_share, rel=0.06)
    # of the small rows' times the start is a part: what is off by 1 % of a time is off by more of the start
    assert abs(found.nccl_start_ns - true.nccl_start_ns) < 0.06 * (true.nccl_start_ns + 10_000)


@PATIENT
@given(true=FIGURES, factors=st.lists(st.floats(0.2, 5.0), min_size=40, max_size=40))
def test_rows_are_fitted_or_held_out_and_held_out_ones_change_no_figure(true, factors):
    rows = measure(true)
    first = fit(rows, DGX, by_hand)
    used = {one for fitted in first.fitted for one in fitted.rows}
    assert used | {one.row for one in first.held_out} == set(rows)
    changed = [
        one if one in used else dataclasses.replace(one, time_us=one.time_us * factor)
        for one, factor in zip(rows, factors, strict=False)
    ]
    assert fit(changed, DGX, by_hand).figures == first.figures


def test_every_second_size_is_fitted_and_repeats_stay_together():
    rows = measure(DGX, ["all_reduce"]) * 2
    again = [dataclasses.replace(one, file="other.txt") for one in rows]
    found = fit([*rows, *again], DGX, by_hand)
    assert {fitted.key: sorted({one.size_bytes // KIB for one in fitted.rows}) for fitted in found.fitted} == {
        "nccl_efficiency": [16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB],
        "nccl_start": [4, 16, 64, 256],
    }
    held_out = [1, 8, 32, 128, KIB, 32 * KIB, 128 * KIB, 512 * KIB]
    assert sorted({one.row.size_bytes // KIB for one in found.held_out}) == held_out


def test_figures_without_enough_rows_stay_and_are_noted():
    true = Figures(nccl_efficiency=0.8, nccl_start_ns=10_000, nccl_p2p_share=0.5)
    large = [16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB, 256 * MIB]
    rows = [*measure(true, ["all_reduce"], sizes=large), *measure(DGX, ["all_to_all"], sizes=large, nodes=2)]
    found = fit(rows, dataclasses.replace(DGX, nccl_start_ns=10_000), by_hand)
    assert [fitted.key for fitted in found.fitted] == ["nccl_efficiency"]
    assert same(found.figures, dataclasses.replace(true, nccl_p2p_share=0.88))
    assert found.notes == (
        "nccl_start: 0 rows of collectives of 4 to 256 KiB in the half that is fitted; expected 3: the profile's figure"
        " stays",
        "nccl_p2p_share: 3 rows of all_to_all of 16 MiB and more in the half that is fitted, of which 0 depend on it;"
        " expected 3: the profile's figure stays",
    )


def test_too_few_rows_are_one_sentence():
    few = measure(DGX, ["all_reduce"], sizes=[16 * MIB, 64 * MIB, 256 * MIB, 2**30])
    assert refusal(fit, few, DGX, by_hand) == (
        "too few rows to fit anything: nccl_efficiency: 2 rows of collectives of 16 MiB and more in the half that is"
        " fitted, of which 2 depend on it; expected 3; nccl_start: 0 rows of collectives of 4 to 256 KiB in the half"
        " that is fitted; expected 3; nccl_p2p_share: 0 rows of all_to_all of 16 MiB and more in the half that is"
        " fitted; expected 3"
    )
    one_size = measure(DGX, ("all_reduce", "all_gather", "broadcast"), sizes=[16 * MIB])
    sentence = "too few rows to fit anything: none would be left to hold out"
    assert refusal(fit, one_size, DGX, by_hand).startswith(sentence)


def test_rows_that_are_quicker_than_any_figure_are_said():
    rows = measure(DGX, ["all_reduce"], sizes=[2**k * MIB for k in range(6, 12)])
    found = fit([dataclasses.replace(one, time_us=0.8 * one.time_us) for one in rows], DGX, by_hand)
    assert found.figures.nccl_efficiency == 1
    assert any(note.startswith("nccl_efficiency: even at 1 its rows are predicted +") for note in found.notes)


def test_nodes_and_network_that_differ_are_said():
    large = [2**k * MIB for k in range(4, 12)]
    inside = measure(dataclasses.replace(DGX, nccl_efficiency=0.9), ["all_reduce"], sizes=large)
    between = measure(dataclasses.replace(DGX, nccl_efficiency=0.6), ["all_reduce"], sizes=large, nodes=2)
    said = "nccl_efficiency: rows of one node ask for 0.9, those of several, whose NICs decide, for 0.6; no one figure"
    assert any(note.startswith(said) for note in fit([*inside, *between], DGX, by_hand).notes)
    alike = [dataclasses.replace(one, nodes=2) for one in inside]
    assert not any("ask for" in note for note in fit([*inside, *alike], DGX, by_hand).notes)


def overfit() -> Fit:
    """Sizes of which every second one is slow, so that the others are predicted worse than before."""
    sizes = [2**k * MIB for k in range(4, 11)]
    rows = [
        dataclasses.replace(one, time_us=one.time_us * (1.5 if at % 2 == 0 else 1.0))
        for at, one in enumerate(measure(DGX, ["all_reduce"], sizes=sizes))
    ]
    return fit(rows, DGX, by_hand)


def test_a_fit_that_makes_held_out_rows_worse_says_so_in_the_file_too():
    found = overfit()
    sentence = nccl_fit_tables.worse(found)
    assert sentence.startswith("held-out rows are predicted worse than before: mean error of all_reduce 1x8: 4")
    assert sentence.endswith("instead of 0.0 %")
    assert f"# Warning: {sentence}\n" in write(found)
    assert nccl_fit_tables.worse(fit(measure(FAST), DGX, by_hand)) == ""


FAST = Figures(nccl_efficiency=0.7, nccl_start_ns=20_000, nccl_p2p_share=0.6)


def base(name: str = "dgx_h100") -> str:
    file = profile_file(name)
    assert file is not None
    return Path(file).read_text(encoding="utf-8")


def write(found: Fit, of: str | None = None) -> str:
    return nccl_profile.calibrated_profile(
        of or base(), "dgx_h100", found, command="python -m reports calibrate m.txt", date="2026-01-02"
    )


@pytest.mark.parametrize("name", [name for name in profile_names() if "[measured]" not in base(name)])
def test_only_what_was_fitted_changes_and_sources_stay(tmp_path, name):
    found = fit(measure(FAST), DGX, by_hand)
    text = write(found, base(name))
    keys = ("nccl_efficiency", "nccl_start", "nccl_p2p_share")
    plain = base(name)
    kept = [line for line in plain.splitlines() if line and not line.startswith(keys)]
    own = text.split("\n[measured]\n")[0].split("\n\n", 1)[1].splitlines()
    assert [line for line in own if line and not line.startswith(keys)] == kept
    assert [line for line in text.splitlines() if line.startswith(keys)] == [
        "nccl_efficiency = 0.7 # from m.txt (all_reduce, 16.0 MiB to 1.00 GiB, 1x8 GPUs), 2026-01-02",
        'nccl_start = "20 us" # from m.txt (all_reduce, 4.00 KiB to 256 KiB, 1x8 GPUs), 2026-01-02',
        "nccl_p2p_share = 0.6 # from m.txt (all_to_all, 16.0 MiB to 1.00 GiB, 1x8 GPUs), 2026-01-02",
    ]
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    cluster = dataclasses.replace(load_profile(name), profile="mine", **dataclasses.asdict(FAST))
    assert load_profile(str(path)) == cluster


@PATIENT
@given(true=FIGURES, name=st.text(max_size=20), command=st.text(max_size=40))
def test_whatever_names_are_given_the_profile_reads_back(tmp_path_factory, true, name, command):
    rows = [dataclasses.replace(one, file=name, gpu=name) for one in measure(true)]
    found = fit(rows, DGX, by_hand)
    command = command.encode("utf-8", "replace").decode()
    text = nccl_profile.calibrated_profile(base(), name, found, command=command, date="2026-01-02")
    path = tmp_path_factory.mktemp("any") / "mine.toml"
    path.write_text(text, encoding="utf-8", newline="")
    loaded, said = load_profile(str(path)), load_measured(str(path))
    assert said is not None
    assert said.command == command
    assert (loaded.nccl_efficiency, loaded.nccl_start_ns, loaded.nccl_p2p_share) == dataclasses.astuple(found.figures)
    assert [group.name for group in said.groups] == ["NCCL all_reduce on 1x8 GPUs", "NCCL all_to_all on 1x8 GPUs"]
    errors = nccl_fit_tables.groups(found)
    assert [group.worst_error for group in said.groups] == pytest.approx(
        [one["worst_error"] for one in errors], abs=1e-4
    )


OTHER = """
[measured]
machine = "host"
date = "2025-01-02"
command = "python -m real calibrate"
ranks = 2
[[measured.groups]]
name = "gemm kernels"
median_error = 0.01
typical_error = 0.25
worst_error = -0.5
least = "4 KiB"
most = "16 MiB"
"""


def test_other_calibrations_groups_stay_and_own_ones_are_replaced():
    found = fit(measure(FAST), DGX, by_hand)
    once = write(found, base() + OTHER)
    assert tomllib.loads(once)["measured"]["command"] == "python -m real calibrate"
    again = tomllib.loads(write(fit(measure(FAST, ["all_reduce"]), DGX, by_hand), once))
    assert [group["name"] for group in again["measured"]["groups"]] == ["gemm kernels", "NCCL all_reduce on 1x8 GPUs"]
    own = tomllib.loads(write(found, write(found)))["measured"]
    assert (own["date"], len(own["groups"])) == ("2026-01-02", 2)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("include = 'x.toml'\n" + base(), "dgx_h100: include: expected a profile without, as paths would lead"),
        (
            base().replace("[cluster]\n", "cluster.cores = 1\n", 1),
            "dgx_h100: expected [cluster] and [measured] as tables with a line for each key",
        ),
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_edited_in_place_is_one_sentence(text, sentence):
    assert refusal(write, fit(measure(FAST), DGX, by_hand), text).startswith(sentence)


def test_repeats_give_a_spread():
    rows = [
        dataclasses.replace(one, time_us=one.time_us * factor, line=line)
        for line, factor in enumerate((0.9, 1.0, 1.1))
        for one in measure(DGX, ["all_reduce"])
    ]
    (group,) = nccl_fit_tables.groups(fit(rows, DGX, by_hand))
    assert group["spread"] == pytest.approx(0.1)
    (alone,) = nccl_fit_tables.groups(fit(rows[: len(SIZES)], DGX, by_hand))
    assert alone["spread"] is None


@PATIENT
@given(
    true=FIGURES, ops=st.sets(st.sampled_from(["all_to_all", "broadcast", "send_recv"])), nodes=st.integers(1, 99999)
)
def test_no_line_is_wider_than_a_terminal(true, ops, nodes):
    found = fit(measure(true, ["all_reduce", *sorted(ops)], nodes=nodes), DGX, by_hand)
    shown = as_text(render_report(NCCL_FIT, FitView(found, "a_profile_with_a_rather_long_name.toml", Path("p.toml"))))
    assert max(map(cell_len, shown.splitlines())) <= WIDTH


def log(op: str, rows: Sequence[PublishedRow]) -> str:
    """As nccl-tests prints it."""
    nodes, gpus = rows[0].nodes, rows[0].gpus_per_node
    ranks = nodes * gpus
    factor = 2 * (ranks - 1) / ranks if op == "all_reduce" else (ranks - 1) / ranks
    lines = [f"# Collective test starting: {'alltoall' if op == 'all_to_all' else op}_perf"]
    for rank in range(ranks):
        place = f"on node{rank // gpus} device  {rank % gpus} [0000:1b:00]"
        lines.append(f"#  Rank {rank:2d} Group  0 Pid   4100 {place} NVIDIA H100 80GB HBM3")
    lines.append("#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong")
    for one in rows:
        us = round(one.time_us, 2)
        half = f"{us:.2f} {one.size_bytes / us / 1e3:.2f} {factor * one.size_bytes / us / 1e3:.2f} 0"
        lines.append(f"{one.size_bytes} {one.size_bytes // 4} float sum -1 {half} {half}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Of a cluster with the figures `FAST`, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for op in ("all_reduce", "all_to_all"):
        Path(f"{op}.txt").write_text(log(op, measure(FAST, [op], model=simulate_row)))
    return ["all_reduce.txt", "all_to_all.txt"]


@pytest.mark.slow
def test_logs_become_a_profile_that_a_scenario_names(logs, capsys):
    assert main(["calibrate", *logs, "--out", "mine.toml"]) == 0
    shown, complaint = capsys.readouterr()
    assert complaint == ""
    assert shown.endswith("profile: mine.toml\n")
    assert max(map(cell_len, shown.splitlines())) <= WIDTH
    assert "nccl_start = 19.98 us" in shown  # of 20: times in a log have two decimals
    text = Path("mine.toml").read_text()
    assert text.splitlines()[1] == "#   python -m reports calibrate all_reduce.txt all_to_all.txt --out mine.toml"
    profile = load_profile("mine.toml")
    found = Figures(
        nccl_efficiency=profile.nccl_efficiency, nccl_start_ns=profile.nccl_start_ns,
        nccl_p2p_share=profile.nccl_p2p_share,
    )  # fmt: skip
    assert same(found, FAST, within=5e-3)

    assert scenarios_main(["profiles", "mine.toml"]) == 0
    shown = capsys.readouterr().out
    assert "measured on 1x8 H100, " in shown
    assert "NCCL all_reduce on 1x8 GPUs, 1 KiB to 512 MiB: typical error 0%" in shown

    text = 'program = "collective"\n[run]\nsteps = 1\n[cluster]\nprofile = "{}"\nhosts = 1\n[collective]\n'
    steps = []
    for name in ("mine.toml", "dgx_h100"):
        Path("s.toml").write_text(text.format(name) + 'op = "all_reduce"\nsize = "1 GiB"\n')
        scenario = load("s.toml")
        spans = simulate(scenario, build(scenario)).spans
        steps.append(max(span.end_ns - span.start_ns for span in spans if span.kind == "all_reduce"))
    assert steps[0] / 1e3 == pytest.approx(simulate_row(row(size_bytes=2**30), found), rel=1e-6)
    assert steps[0] > 1.2 * steps[1]


def test_the_command_refuses_before_and_after_it_predicts(logs, capsys):
    Path("there.toml").write_text("")
    for words, sentence in [
        ([*logs, "--out", "there.toml"], "there.toml: exists already; nothing is ever overwritten, give another file"),
        ([*logs, "--out", "no/mine.toml"], "no/mine.toml: could not be written: no is not a folder"),
        ([*logs, "--out", "mine.txt"], "--out mine.txt: expected a file whose name ends in .toml, as a"),
        ([*logs, "--out", "mine.toml", "--profile", "dgx_x"], "profile = 'dgx_x': expected a profile such as "),
        ([str(SAMPLES / "all_reduce_2.18.txt"), "--out", "mine.toml"], "too few rows to fit anything: nccl_effic"),
        (["none.txt", "--out", "mine.toml"], "none.txt: could not be read: No such file or directory"),
    ]:  # fmt: skip
        assert main(["calibrate", *words]) == 2
        shown, complaint = capsys.readouterr()
        assert shown == ""
        assert complaint.startswith(sentence)
        assert len(complaint.splitlines()) == 1
    assert not Path("mine.toml").exists()
    Path("other.txt").write_text(log("all_reduce", measure(DGX, ["all_reduce"])).replace("H100", "A100"))
    assert main(["calibrate", *logs, "other.txt", "--out", "mine.toml"]) == 2
    assert capsys.readouterr().err == ("rows on dgx_a100, dgx_h100: expected those of one kind of host, or --profile\n")


@pytest.mark.slow
def test_published_rows_of_one_source_are_fitted_as_ones_own(tmp_path, monkeypatch, capsys):
    """All-reduces on 4, 8 and 16 DGX H100: the held-out half of real rows is predicted no worse than before."""
    monkeypatch.chdir(tmp_path)
    head, *lines = PUBLISHED.read_text().splitlines()
    Path("m.csv").write_text("\n".join([head, *(line for line in lines if "2411.13055" in line)]))
    assert main(["calibrate", "m.csv", "--out", "mine.toml", "--json"]) == 0
    shown, complaint = capsys.readouterr()
    content = json.loads(shown)
    assert "warning" not in complaint
    assert [fitted["key"] for fitted in content["fitted"]] == ["nccl_efficiency"]
    whole = content["held_out"][-1]
    assert (whole["operation"], content["worse"]) == ("all", "")
    assert whole["mean_after"] <= whole["mean_before"]
    assert sum(group["rows"] for group in content["held_out"][:-1]) == whole["rows"]


@pytest.mark.slow
def test_rows_of_gloo_are_left_out_with_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    head, *lines = PUBLISHED.read_text().splitlines()
    chosen = [line for line in lines if "tc_cluster_setting" in line and "all_reduce" in line]
    Path("m.csv").write_text("\n".join([head, *chosen]))
    assert main(["calibrate", "m.csv", "--out", "mine.toml"]) == 0
    assert "rows of another library than NCCL: not fitted\n" in capsys.readouterr().err
    Path("g.csv").write_text("\n".join([head, *(line for line in chosen if ",gloo," in line)]))
    assert main(["calibrate", "g.csv", "--out", "other.toml"]) == 2
    assert capsys.readouterr().err.endswith("no rows of NCCL that can be predicted: nothing to fit\n")


def test_every_key_is_documented():
    section = (
        (Path(__file__).parents[3] / "docs/reference/measurements.md").read_text().split("## A profile of your own")[1]
    )
    names = ["profile", "out", "fitted", "held_out", "notes", "worse"]
    names += [*nccl_fit_tables.FITTED, *nccl_fit_tables.HELD_OUT]
    assert [name for name in names if f"`{name}`" not in section] == []
