"""Spans as they come, a step's at a time: the same bytes as all at once; of runs that end early; thinned by choice."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from reports.run import Run
from reports.store import run_folder as store
from scenarios.config.scenario import Exchange, Scenario
from scenarios.seam.errors import ScenarioError
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from sim.run import RunProgress, play, simulate
from sim.span_filter import Keeping, numbers_of_option
from tests.commands import unfold
from tests.small import Play, cluster, scenario
from twinstep.prediction import main
from twinstep.reporting.cli import main as show

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "data" / "real_world.toml"
KERNEL = Kernel(kind="gemm", flops=1e9)


def exchange(steps: int = 5) -> Scenario:
    return scenario(
        cluster(2, 1), program="all_to_all", exchange=Exchange(size_bytes=1 << 12), payload="sizes", steps=steps
    )


def in_parts(given: Scenario, program: object) -> tuple[list[list[Span]], Recording]:
    parts: list[list[Span]] = []
    return parts, play(given, program, parts.append)  # type: ignore[arg-type]


def test_steps_are_handed_on_one_by_one_in_order_and_completely() -> None:
    given = exchange()
    parts, recording = in_parts(given, build(given))
    assert [{span.step for span in part} for part in parts if part[0].step >= 0] == [{n} for n in range(5)]
    assert recording.spans == []
    whole = simulate(given, build(given))
    key: Callable[[Span], tuple[int, str, int]] = lambda span: (span.rank, span.stream, span.sequence)  # noqa: E731
    assert sorted((span for part in parts for span in part), key=key) == whole.spans
    assert all(part == sorted(part, key=key) for part in parts)


async def lingering(rank: Rank) -> None:
    """Await in step 2 what is issued in step 0; a spawned chain of step 1 issues its second half in step 2."""
    side = rank.stream("side")

    async def chain() -> None:
        await side.compute(KERNEL, int, label="first of the chain")
        await side.compute(KERNEL, int, label="second of the chain")

    with rank.step(0):
        late = rank.compute(KERNEL, int, label="late")
    with rank.step(1):
        spawned = side.spawn(chain())
    with rank.step(2):
        await late
        await spawned
    await rank.compute(KERNEL, int, label="outside")


def test_a_step_ends_with_its_last_operation_and_later_steps_wait_for_it() -> None:
    parts, _ = in_parts(scenario(cluster(1, 2)), Play(lingering))
    assert [sorted({span.label for span in part}) for part in parts] == [
        ["late", "step 0"],
        ["first of the chain", "second of the chain", "step 1"],
        ["step 2"],
        ["outside"],
    ]
    assert all(span.wait_until_ns >= span.end_ns for part in parts for span in part if span.kind != "step")


async def twice(rank: Rank) -> None:
    for step in (0, 1, 0):
        with rank.step(step):
            await rank.compute(KERNEL, int, label="work")


def test_a_step_of_a_number_that_is_over_comes_last() -> None:
    parts, _ = in_parts(scenario(cluster(1, 2)), Play(twice))
    assert [[span.step for span in part] for part in parts] == [[0] * 4, [1] * 4, [0] * 4]


@pytest.mark.parametrize("step", [1, None])
def test_the_end_is_reported_before_spans_outside_of_steps(step: int | None) -> None:
    """Of very many steps that may take long; whether the run was stopped or not."""
    given, came = exchange(), list[str]()
    stop = (lambda _: False) if step is None else stop_in_step(step)
    play(
        given,
        build(given),
        lambda spans: came.append("outside" if spans[-1].step < 0 else "step"),
        stop=stop,
        ended=lambda: came.append("ended"),
    )
    assert came.count("ended") == 1
    assert came[-1] == ("outside" if step is None else "step")
    assert "ended" in came[:-1]


def write(given: Scenario, folder: Path, *, in_groups_of: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(store, "GROUP_ROWS", in_groups_of)
    with store.writing(folder) as writing:
        writing.finish(play(given, build(given), writing.add))
    return (folder / "spans.parquet").read_bytes()


@pytest.mark.parametrize("rows", [1, 7, 1 << 16])
def test_spans_that_are_written_as_they_come_have_the_bytes_of_a_recording(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = exchange()
    streamed = write(given, tmp_path / "streamed", in_groups_of=rows, monkeypatch=monkeypatch)
    whole = store.write(simulate(given, build(given)), tmp_path / "whole")
    assert streamed == (whole / "spans.parquet").read_bytes()


def test_a_disk_that_is_full_is_not_the_program_s_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.Writing, "add", full)
    assert main([str(FILE), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'run'}: could not be written: No space left on device\n"
    assert os.listdir(tmp_path) == []


# Runs that end early


def stop_in_step(number: int) -> Callable[[Callable[[], RunProgress]], bool]:
    return lambda where: where().whole_steps >= number


def test_a_stopped_run_has_its_ended_steps_and_its_position(tmp_path: Path) -> None:
    given, spans = exchange(steps=400), list[Span]()
    recording = play(given, build(given), spans.extend, stop=stop_in_step(3))
    whole = simulate(given, build(given))
    assert set(spans) < set(whole.spans)
    assert {span.step for span in spans if span.kind == "step"} >= {0, 1, 2}
    assert not recording.info.complete
    assert recording.info.error.startswith("interrupted after ")
    assert " of 400 steps, simulated time " in recording.info.error
    recording.spans = spans
    run = store.load(store.write(recording, tmp_path / "run"))
    assert run.info.error == recording.info.error
    assert run.steps["complete"].tolist()[:3] == [True] * 3


async def get_stuck(rank: Rank) -> None:
    with rank.step(0):
        await rank.compute(KERNEL, int, label="quick")
        if rank.rank == 0:
            for _ in range(10_000):
                await rank.compute(KERNEL, int, label="slow")


def test_unfinished_steps_are_left_out_even_when_cleanup_ends_them() -> None:
    """The step of rank 0 is under way; its `with` ends only when the run is cleared away, which must not count."""
    spans = list[Span]()
    recording = play(scenario(cluster(1, 2)), Play(get_stuck), spans.extend, stop=lambda where: where().now_ns > 10**6)
    assert [(span.rank, span.kind) for span in spans if span.kind == "step"] == [(1, "step")]
    steps = Run.of(Recording(info=recording.info, spans=spans)).steps
    assert steps["complete"].tolist() == [False]


def interrupt(folder: Path) -> subprocess.CompletedProcess[str]:
    """Start a prediction of very many steps that gets Ctrl-C once it has begun to write spans."""
    words = [sys.executable, "-m", "sim", str(FILE), "--steps", "20000", "--out", str(folder)]
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    while process.poll() is None and not list(folder.parent.glob(f".{folder.name}.partial/spans.parquet")):
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def test_ctrl_c_leaves_a_readable_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    done = interrupt(folder)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith(f"{folder}: interrupted after ")
    assert done.stderr.endswith("; what had ended by then is in it\n")
    assert done.stderr.count("\n") == 1
    assert show([str(folder)]) == 0
    assert "THIS RUN ENDED EARLY: interrupted after " in capsys.readouterr().out
    assert os.listdir(tmp_path) == ["run"]


def test_ctrl_c_while_the_run_is_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = store.Writing.finish

    def finish_late(self: store.Writing, recording: Recording) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        finish(self, recording)

    monkeypatch.setattr(store.Writing, "finish", finish_late)
    assert main([str(FILE), "--out", str(tmp_path / "run")]) == 130
    assert os.listdir(tmp_path) == []


def test_ctrl_c_while_changes_are_simulated_keeps_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "twinstep.what_ifs.program_changes.advice.advice", lambda *_: os.kill(os.getpid(), signal.SIGINT) or ()
    )
    assert main([str(FILE), "--out", str(tmp_path / "run"), "--draws", "2"]) == 130
    said = f"{tmp_path / 'run'}: the run in it is whole; its changes were not all simulated\n"
    assert capsys.readouterr().err.endswith(said)
    assert store.load(tmp_path / "run").info.complete


def test_advice_that_fails_keeps_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr("twinstep.what_ifs.program_changes.advice.advice", faulty)
    with pytest.raises(ValueError, match="a fault of ours"):
        main([str(FILE), "--out", str(tmp_path / "run")])
    assert store.load(tmp_path / "run").info.complete


def test_ctrl_c_before_a_step_has_ended_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("twinstep.progress.Interrupt.__enter__", lambda self: SimpleNamespace(requested=True))
    monkeypatch.setattr("sim.clock._EVENTS_A_LOOK", 1)
    assert main([str(FILE), "--out", str(tmp_path / "run")]) == 130
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'run'}: not written: interrupted after 0 of ")
    assert os.listdir(tmp_path) == []


def test_the_second_of_two_runs_into_one_folder_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sim.run.play", lambda *_, **__: pytest.fail("it has begun"))
    with store.writing(tmp_path / "run"):
        assert main([str(FILE), "--out", str(tmp_path / "run")]) == 2
        said = capsys.readouterr().err
    assert said == f"{tmp_path / 'run'}: another process is writing it; give another folder\n"


def test_leftovers_of_a_killed_prediction_are_named_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, of_a_job, of_others = (tmp_path / f".{name}.partial" for name in ("other", "job", "download"))
    (of_a_job / ".step.partial").mkdir(parents=True)
    for path in (left, of_others):
        path.mkdir()
    (left / "spans.parquet").touch()
    (of_a_job / ".step.partial" / "spans.parquet").touch()
    (of_others / "film").touch()
    assert main([str(FILE), "--out", str(tmp_path / "run"), "--quiet"]) == 0
    said = unfold(capsys.readouterr().err)
    for path in (left, of_a_job):
        assert f"note: {path}: left by a command that was killed; removed\n" in said
    assert sorted(os.listdir(tmp_path)) == [of_others.name, "run"]


# Fewer spans by choice


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ("all", None),
        ("none", set()),
        ("0", {0}),
        ("0,4-6, 9", {0, 4, 5, 6, 9}),
        ("every:4", {0, 4, 8}),
        ("every:1", set(range(10))),
    ],
)
def test_a_choice_names_numbers(words: str, numbers: set[int] | None) -> None:
    assert numbers_of_option("--keep-ranks", words, 10) == numbers


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("10", "numbers from 0 to 9, ranges upwards"),
        ("5-4", "numbers from 0 to 9, ranges upwards"),
        ("every:0", "'every:' and at least 1"),
        ("", "numbers and ranges such as '0,8,16-23', 'every:64', 'all' or 'none'"),
        ("-1", "numbers and ranges such as '0,8,16-23', 'every:64', 'all' or 'none'"),
    ],
)
def test_an_invalid_choice_raises_the_expected_form(words: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=f"^{re.escape(f'--keep-ranks = {words!r}: expected {expected}')}$"):
        numbers_of_option("--keep-ranks", words, 10)


def test_steps_are_always_kept_and_phases_are_known_without_their_spans() -> None:
    async def body(rank: Rank) -> None:
        for step in range(4):
            with rank.step(step):
                await rank.compute(KERNEL, int, label="early" if step < 2 else "late")

    given = scenario(cluster(1, 2), steps=4)
    keeping, kept = Keeping(ranks=frozenset({1}), steps=frozenset({3})), list[Span]()
    recording = play(given, Play(body), lambda spans: kept.extend(keeping.of(spans)))
    assert [(span.rank, span.step) for span in kept if span.kind != "step"] == [(1, 3)]
    assert sum(span.kind == "step" for span in kept) == 8
    thinned = keeping.as_thinned
    assert thinned is not None
    assert (thinned.ranks, thinned.steps, thinned.left_out, thinned.phases) == ((1,), (3,), 7, (2,))
    whole = Run.of(simulate(given, Play(body))).steps
    info = dataclasses.replace(recording.info, thinned=thinned)
    assert Run.of(Recording(info=info, spans=kept)).steps.equals(whole)


@pytest.mark.parametrize("steps", [1, 3, 4, 8])
def test_a_pipelines_steady_steps_are_known_without_their_spans(steps: int) -> None:
    async def body(rank: Rank) -> None:
        read = 0
        for step in range(steps):
            with rank.step(step):
                while read < min(step + 2, steps):
                    await rank.compute(KERNEL, int, label="read")
                    read += 1
                await rank.compute(KERNEL, int, label="train")

    given = scenario(cluster(1, 2), steps=steps)
    keeping, kept = Keeping(ranks=frozenset()), list[Span]()
    recording = play(given, Play(body), lambda spans: kept.extend(keeping.of(spans)))
    whole = Run.of(simulate(given, Play(body))).steps
    assert whole.loc[whole["steady"], "step"].tolist() == (list(range(1, steps - 1)) if steps > 1 else [0])
    info = dataclasses.replace(recording.info, thinned=keeping.as_thinned)
    assert Run.of(Recording(info=info, spans=kept)).steps.equals(whole)


def test_a_filter_that_keeps_all_reports_no_thinning() -> None:
    assert Keeping().as_thinned is None


def test_the_command_keeps_the_requested_spans_and_prints_their_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(FILE), "--out", str(tmp_path / "all"), "--quiet"]) == 0
    assert main([str(FILE), "--out", str(tmp_path / "one"), "--keep-ranks", "1", "--full"]) == 0
    whole, thin = store.load(tmp_path / "all"), store.load(tmp_path / "one")
    left_out = len(whole.spans) - len(thin.spans)
    assert f"spans kept of 1 of 2 ranks; {left_out:,} others left out" in capsys.readouterr().out
    assert thin.steps.equals(whole.steps)
    own = whole.ranks["rank"] == 1
    of_all = ["compute_over_mean", "transfer_ns", "wait_ns"]  # nobody knows any more when the others entered
    assert thin.ranks.drop(columns=of_all).equals(whole.ranks[own].drop(columns=of_all).reset_index(drop=True))
    assert len(thin.links) == len(whole.links)


@pytest.mark.parametrize("option", ["--keep-ranks", "--keep-steps"])
def test_a_choice_of_ranks_that_do_not_exist_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(FILE), option, "0,99", "--out", str(tmp_path / "run")])
    assert capsys.readouterr().err.startswith(f"{option} = '0,99': expected numbers from 0 to ")


def test_only_simulated_ranks_of_host_classes_can_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "large.toml"
    file.write_text(
        "program = 'collective'\n[run]\nfidelity = 'links'\nranks = 'alike'\n"
        "[cluster]\nprofile = 'dgx_h100'\nhosts = 9\n[collective]\nop = 'all_reduce'\nsize = '1 MiB'\n"
    )
    assert main([str(file), "--out", str(tmp_path / "one"), "--keep-ranks", "0,70"]) == 0
    assert set(store.load(tmp_path / "one").spans.query("kind != 'step'")["rank"]) == {0}
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main([str(file), "--out", str(tmp_path / "two"), "--keep-ranks", "70"])
    assert capsys.readouterr().err == (
        "--keep-ranks = '70': expected some of the 8 ranks that are simulated with run.ranks = 'alike', such as"
        " 0, 1, 2, 3, 4, 5, 6, 7\n"
    )
    assert not (tmp_path / "two").exists()


def test_ranks_that_have_not_begun_when_a_run_is_stopped_leave_no_warning() -> None:
    async def body(rank: Rank) -> None:
        await rank.barrier()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recording = play(scenario(cluster(40, 8)), Play(body), lambda _: None, stop=lambda _: True)
        gc.collect()
    assert not recording.info.complete
    assert [str(warning.message) for warning in caught] == []
