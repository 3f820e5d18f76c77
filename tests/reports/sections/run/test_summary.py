from __future__ import annotations

import dataclasses
import io
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path

from hypothesis import given

from reports.analysis.repeats import Play, Plays
from reports.run import Run
from reports.sections.run.subject import RunView
from reports.sections.run.summary import SUMMARY, next_line
from reports.terminal import text
from reports.terminal.present import present, print_run
from reports.terminal.render import render_report
from scenarios.seam.memory import ACTIVATIONS
from scenarios.seam.trace import Advice, MemoryRow, Recording
from tests.lanes import examples
from tests.reports.recordings import SCENARIO, by_hand, info, recordings, span, thin, with_changes, with_spans


def screen(recording: Recording) -> list[str]:
    return text.as_text(render_report(SUMMARY, RunView.of(Run.of(recording)))).splitlines()


def fact(lines: list[str], name: str) -> str:
    """Return a fact's text, its lines joined."""
    at = next(number for number, line in enumerate(lines) if line.startswith(f"{name} "))
    end = next(number for number in range(at + 1, len(lines)) if not lines[number].startswith("    "))
    return " ".join(line.strip() for line in [lines[at].removeprefix(name), *lines[at + 1 : end]])


def test_the_first_screen_says_what_a_user_asks_first() -> None:
    assert screen(by_hand()) == [
        "by_hand: predicted, 2 ranks on 2 hosts",
        "",
        "step time   100 ns, median of steps 1-2",
        "samples/s   1,280,000,000, 64 samples per rank",
        "memory      fits with 4.00 KiB to spare on the fullest rank (1)",
        "limited by  gemm (matrix products): 60.0 % of the step",
        "            GPU 0 of host 1 (rank 1): its computations take 1.5 times as long as",
        "            equal ones on other ranks; 20 ns of a 100 ns step",
        "would help  not simulated; --what-if tries settings, hardware and the program",
        "",
        "Critical path of step 1 by kind of work, 100 ns",
        "D" * 48 + "r" * 28 + "." * 4,
        "D dense 60.0 %   r reductions 35.0 %   . waiting 5.0 %",
        "",
    ]


def test_a_measured_run_has_no_uncertainty_and_no_changes() -> None:
    lines = screen(by_hand(world="real"))
    assert lines[0] == "by_hand: measured, 2 ranks on 2 hosts"
    assert not [line for line in lines if line.startswith(("how sure", "would help"))]


def test_the_first_screen_has_the_main_reason_of_the_uncertainty_and_what_is_not_predicted() -> None:
    known = "profile dgx_h100: datasheet values and assumptions, not calibrated"
    recording = by_hand(scenario={**SCENARIO, "rests_on": known, "known_errors": {}})
    recording.info = dataclasses.replace(recording.info, left_out=("time of DataLoader workers",))
    lines = screen(recording)
    unknown = "unknown: the hardware is neither calibrated nor compared with measured steps"
    assert fact(lines, "how sure") == f"{unknown} {known} not predicted: time of DataLoader workers"


def test_memory_that_does_not_fit_is_said_with_a_remedy() -> None:
    full = by_hand()
    full.memory.append(MemoryRow(rank=1, part="activations", size_bytes=6144, capacity_bytes=16384, kind=ACTIVATIONS))
    said = "MEMORY DOES NOT FIT: 2.00 KiB too much on the fullest rank (1); expected a smaller batch_size"
    assert fact(screen(full), "memory").startswith(said)


def test_the_best_change_of_each_group_stands_alone_and_says_whether_it_is_free() -> None:
    changed = with_changes(by_hand())
    assert fact(screen(changed), "would help") == "bought: GPUs twice as fast, +25.0 % throughput"


def test_a_run_with_changes_says_which_command_lists_them_all() -> None:
    with redirect_stdout(io.StringIO()) as said:
        print_run(RunView.of(Run.of(with_changes(by_hand()))), Namespace(json=False, full=False), "w")
    assert "next: twinstep report w --full (all changes and tables, a page)" in said.getvalue().splitlines()


def test_changes_of_the_program_that_every_prediction_simulates_are_named_unasked() -> None:
    recording = by_hand()
    advice = (Advice(change="CUDA graphs", made_by="", saved_ns=20.0, share=0.2),)
    recording.info = dataclasses.replace(recording.info, advice=advice)
    said = "free: CUDA graphs, -20.0 % of the step others: --what-if tries settings, hardware and the program"
    assert fact(screen(recording), "would help") == said


def test_a_run_without_steps_says_so_and_one_that_ended_early_why() -> None:
    lines = screen(Recording(info=info(complete=False, error="rank 1 was killed by signal 9")))
    assert lines[1] == "THIS RUN ENDED EARLY: rank 1 was killed by signal 9"
    assert fact(lines, "step time") == "unknown: no rank completed a step"


def test_draws_and_spans_left_out_are_said() -> None:
    run = Run.of(thin())
    view = RunView.of(run, draws=Plays([Play.of(run)]))
    lines = text.as_text(render_report(SUMMARY, view)).splitlines()
    assert "10th to 90th percentile 100 ns, the same in every draw" in fact(lines, "step time")
    assert any(line.startswith("Critical path of step 1, seen on 1 of 2 ranks by kind of work") for line in lines)


def test_facts_that_names_make_long_are_clipped_at_a_word() -> None:
    spans = [span(0, "step", 0, 90), span(0, "compute", 0, 90, label="forward", kernel="k " * 300)]
    recording = with_spans(by_hand(), *spans)
    assert " k … nic1: carries" in fact(screen(recording), "limited by")


@examples(8)
@given(recordings())
def test_the_first_screen_of_any_run_is_25_lines_of_80_columns_at_most(recording: Recording) -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        present(Path("runs/r"), Namespace(quiet=False, json=False, full=False), run=Run.of(recording))
    lines = out.getvalue().splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= text.WIDTH
    assert lines[-2:] == [next_line("runs/r"), "run folder: runs/r"]
