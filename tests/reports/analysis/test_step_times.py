"""The times of steps: warm-up is left out of every mean, and steps timed with the recording off say the step time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.analysis.repeats import Play
from reports.analysis.step_breakdown import parts_of_step, steady_kept, steady_steps, timed_steps, typical_step
from reports.analysis.step_times import leading
from reports.compare.comparison import compare
from reports.json_document import document
from reports.page import render
from reports.page import side_by_side as side_by_side_page
from reports.page.run import page as run_page
from reports.run import Run
from reports.sections import comparison as compare_tables
from reports.sections.comparison import COMPARISON, CompareView
from reports.sections.run import headline as headline_module
from reports.sections.run.headline import headline
from reports.sections.side_by_side import BESIDE, BesideView
from reports.side_by_side.frames import side_by_side
from reports.study.measures import measures_of
from reports.terminal import text
from reports.terminal.render import render_report
from scenarios.seam.trace import Recording, Span
from tests.reports import shown as run_tables
from tests.reports.recordings import info, rows_as, span


@pytest.mark.parametrize(
    ("step_ns", "count"),
    [
        ([], 0),
        ([900], 0),
        ([900, 90], 0),  # nothing to tell what is usual
        ([900, 90, 91], 1),
        ([900, 400, 90, 91, 92, 90, 91], 2),
        ([120, 110, 100, 101, 99, 100], 1),  # 10 % above is within what steps may differ by
        ([100, 900, 100, 100, 100, 100], 0),  # a hiccup
        ([100, 101, 99, 100, 300, 100], 0),
        ([44, 20, 43, 21, 44, 20, 44, 22], 0),  # steps of two lengths
        ([60, 90, 200, 100, 150, 90, 180], 0),
        ([100] * 50 + [80] * 50, 50),
        ([9000, 90, 91], 1),  # compiled
        ([900, 400, 200, 90, 91, 92], 3),
        ([500, 300, 90, 91, 90, 92], 2),  # the allocator grows in the second
        ([90, 91, 90, 95, 100, 110, 120, 130], 0),  # throttled
    ],
)
def test_leading_steps_above_what_the_others_settle_on_are_warm_up(step_ns, count):
    assert leading(step_ns) == count


def settle(seed: int, count: int, noise: float) -> list[int]:
    drawn = np.random.default_rng(seed).uniform(-1, 1, count)
    return [int(each) for each in 1e6 * (1 + noise * drawn)]


# Up to this noise no step is 10 % above any median: (1 + noise) <= 1.1 * (1 - noise).
SURE = 0.047


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(12, 60), st.floats(0, SURE))
def test_slow_first_steps_are_found_in_noise_and_no_others(seed: int, slow: int, count: int, noise: float):
    steps_ns = settle(seed, count, noise)
    assert leading([*[5_000_000] * slow, *steps_ns]) == slow
    assert leading(steps_ns) == 0


def test_noise_of_ten_percent_hides_or_adds_a_slow_step_in_one_run_of_a_hundred_at_most():
    found = [leading([*[5_000_000] * 2, *settle(seed, 12 + seed % 20, 0.1)]) for seed in range(1000)]
    assert min(found) == 2
    assert sum(each > 2 for each in found) <= 10


SLOW, STEPS = 900, (0, 1)


def recording(world: str = "real") -> Recording:
    """Two ranks in eight steps of 100 ns, in which they compute for 60 ns and all-reduce; the first two take longer.

    In these rank 1 comes late and does most of its waiting outside of computation.
    """
    spans, now = [], 0
    for step in range(8):
        length, late = (SLOW, 500) if step in STEPS else (100, 0)
        for rank in range(2):
            spans += [
                span(rank, "step", now, now + length, step=step, sequence=9 * step),
                span(rank, "compute", now, now + 60 + late * rank, label="forward", step=step, sequence=9 * step + 1),
                span(
                    rank, "all_reduce", now + 60 + late * rank, now + 90 + late, label="gradients", step=step,
                    sequence=9 * step + 2, group="world", call=step, bytes_in=100, bytes_out=100, bytes_sent=100,
                ),
            ]  # fmt: skip
        now += length
    return Recording(info=dataclasses.replace(info(), world=world), spans=spans)


@pytest.fixture(scope="module")
def run() -> Run:
    return Run.of(recording())


def test_steps_say_which_are_warm_up_and_frames_keep_their_spans(run: Run):
    assert run.warm_up == [*STEPS]
    assert run.steps["warm_up"].tolist() == [step in STEPS for step in range(8)]
    assert steady_steps(run.steps)["step"].tolist() == [2, 3, 4, 5, 6, 7]
    assert run.spans["step"].nunique() == 8
    assert set(run.critical_path["step"]) == set(range(8))


def test_of_predictions_those_of_scripts_have_a_warm_up():
    """A script's own code runs, and fills torch's caches in its first steps."""
    predicted = recording("sim")
    assert Run.of(predicted).warm_up == []
    script = dataclasses.replace(predicted.info, scenario={**predicted.info.scenario, "program": "script"})
    assert Run.of(dataclasses.replace(predicted, info=script)).warm_up == [*STEPS]


def test_frames_take_their_means_without_the_warm_up(run: Run):
    operations = run.operations.set_index("label")
    assert operations["steps"].tolist() == [6, 6]
    assert operations.loc["forward", "max_ns"] == 60
    assert operations.loc["gradients", "wait_ns"] == 0
    assert run.ranks["steps"].tolist() == [6, 6]
    assert run.ranks["wait_ns"].tolist() == [0, 0]
    assert run.late_ranks_of(steady_kept(run)).empty
    assert run.stragglers.empty  # rank 1 computes as long as rank 0 in all but the warm-up
    parts = parts_of_step(run, steady_kept(run)).set_index("part")
    assert parts.loc["waiting for other ranks", "mean_ns"] == 0
    assert parts.loc["idle", "share"] == pytest.approx(0.1)
    assert typical_step(run) not in STEPS


def test_tables_pages_and_json_name_it_and_leave_it_out(run: Run):
    said = "steps 0-1 are warm-up (up to 900 ns), left out of means"
    assert said in headline(run)
    assert said in text.as_text(run_tables.summarize(run)).splitlines()
    content = run_tables.as_json(run)
    assert (content["warm_up"], content["median_of_steps"]) == ([0, 1], [2, 3, 4, 5, 6, 7])
    assert content["late_ranks"] == []
    assert {row["steps"] for row in content["operations"]} == {6}
    assert said in render.html(run_page.page(run))
    both = side_by_side([("a", run), ("b", run)])
    assert said in " ".join(text.as_text(render_report(BESIDE, BesideView(both))).split())
    assert both.results["steps"].tolist() == [6, 6]


def test_a_comparison_leaves_the_steps_out_on_both_sides(run: Run):
    found = compare(Run.of(recording("sim")), run)
    assert found.steps["step"].tolist() == [2, 3, 4, 5, 6, 7]
    assert found.operations.set_index("label").loc["forward", "predicted_high_ns"] == 60
    assert not {*found.worst["step"]} & {*STEPS}
    assert document(COMPARISON, CompareView(found))["warm_up"] == [0, 1]
    assert any("steps 0-1 are warm-up" in line for line in compare_tables.about(found))


def test_steps_of_a_long_run_have_a_row_for_the_warm_up():
    spans = [
        span(0, "step", 0, 1000, step=0),
        *(span(0, "step", 900 + 100 * n, 1000 + 100 * n, step=n) for n in range(1, 30)),
    ]
    run = Run.of(Recording(info=dataclasses.replace(info(), world="real", world_size=1), spans=spans))
    lines = text.as_text(run_tables.summarize(run)).splitlines()
    rows = [line.split() for line in lines[lines.index("Steps") :]]
    assert [(row[0], row[-1]) for row in rows[3:5]] == [("0", "warm-up"), ("1-29", "same")]


@pytest.mark.parametrize(
    ("step_ns", "said"),
    [
        ([9000, 100], "the first step took 9.00 us, the second 100 ns: it may be warm-up"),
        ([105, 100], ""),
        ([9000], ""),
    ],
)
def test_two_steps_of_which_the_first_took_longer_are_remarked(step_ns, said):
    """Nothing tells what is usual, so the first is in the median."""
    ends = np.cumsum(step_ns).tolist()
    spans = [
        span(0, "step", end - took, end, step=at) for at, (took, end) in enumerate(zip(step_ns, ends, strict=True))
    ]
    run = Run.of(Recording(info=dataclasses.replace(info(), world="real", world_size=1), spans=spans))
    assert run.warm_up == []
    assert said in (line := headline_module.warm_up(run))
    assert bool(line) == bool(said)


def test_no_row_of_step_times_mixes_the_warm_up_with_other_steps(run: Run):
    """The page of several runs: 900 ns are in a row of their own."""
    html = render.html(side_by_side_page.page(side_by_side([("a", run), ("b", run)]), ["", ""]))
    assert html.count(", warm-up") >= 2
    assert "Warm-up steps of a measured run have their own row." in html


def with_unrecorded(*ns: int, ranks: int = 2) -> Run:
    """Return the run above with steps of these durations behind it that are timed with the recording off.

    Rank 1 begins and ends each 2 ns later.
    """
    made = recording()
    now = 5_000
    for number, length in enumerate(ns, 10):
        for rank in range(ranks):
            begun = now + 2 * rank
            made.spans.append(span(rank, "step", begun, begun + length - 2, step=-1, label=f"step {number}"))
        now += length
    return Run.of(made)


def test_steps_timed_with_the_recording_off_are_the_step_time_of_a_run():
    run = with_unrecorded(84, 80, 81, 82)
    assert run.unrecorded_steps[["step", "ranks", "step_ns", "fastest_rank_ns"]].to_numpy().tolist() == [
        [10, 2, 84, 82],
        [11, 2, 80, 78],
        [12, 2, 81, 79],
        [13, 2, 82, 80],
    ]
    assert timed_steps(run)["step_ns"].tolist() == [84, 80, 81, 82]
    assert len(steady_steps(run.steps)) == 6  # which the other frames are of
    assert run.steps["step"].tolist() == [*range(8)]
    assert (run.operations["steps"] == 6).all()
    assert list(Play.of(run).step_ns) == [84, 80, 81, 82]
    assert measures_of(run)["step_ns"] == 81.5
    assert measures_of(run)["exposed_share"] == pytest.approx(0.3)  # of the recorded step, which takes 100 ns


@pytest.mark.parametrize(
    ("ns", "ranks"),
    [
        pytest.param((80, 81), 2, id="too few"),
        pytest.param((80, 81, 82, 83), 1, id="not on all ranks"),
        pytest.param((), 2, id="none"),
    ],
)
def test_else_the_recorded_steps_are_the_step_time(ns: tuple[int, ...], ranks: int):
    run = with_unrecorded(*ns, ranks=ranks)
    assert timed_steps(run)["step_ns"].tolist() == [100] * 6
    assert not any("recording off" in line for line in headline(run))


def test_a_run_few_of_whose_steps_are_steady_is_timed_by_these():
    """What the steps do that were timed with the recording off is not known."""
    run = with_unrecorded(50, 50, 50)
    spans = rows_as(Span, run.spans)
    others = [  # each of these steps does something else besides
        span(0, "barrier", 100 * step + 1795, 100 * step + 1799, step=step, label=f"of step {step}")
        for step in (3, 4, 6)
    ]
    unlike = Run.of(Recording(info=run.info, spans=[*spans, *others]))
    assert steady_steps(unlike.steps)["step"].tolist() == [2, 5, 7]
    assert timed_steps(unlike)["step_ns"].tolist() == [100] * 3


def test_the_first_slow_ones_of_them_are_warm_up_too():
    assert timed_steps(with_unrecorded(500, 80, 81, 82, 80, 81))["step"].tolist() == [11, 12, 13, 14, 15]
    assert timed_steps(with_unrecorded(500, 80, 81))["step"].tolist() == [11, 12]


def test_tables_pages_and_json_say_that_the_recording_was_off():
    run, said = with_unrecorded(80, 81, 82), "timed with the recording off; 100 ns with every call recorded"
    assert headline(run)[2:4] == ["step time 81 ns, the median of steps 10-12", said]
    content = run_tables.as_json(run)
    assert (content["median_step_ns"], content["median_recorded_step_ns"]) == (81, 100)
    assert content["median_of_steps"] == [10, 11, 12]
    assert [row["step_ns"] for row in content["unrecorded_steps"]] == [80, 81, 82]
    assert said in render.html(run_page.page(run))
    both = side_by_side([("a", run), ("b", run)])
    assert said in " ".join(text.as_text(render_report(BESIDE, BesideView(both))).split())
    assert both.results["step_ns"].tolist() == [81, 81]
    assert said in " ".join(render.html(side_by_side_page.page(both, ["a", "b"])).split())


def test_a_gpu_script_whose_steps_are_all_recorded_says_so():
    scenario = {**recording().info.scenario, "library": "nccl"}
    made = recording()
    made.info = dataclasses.replace(made.info, scenario={**scenario, "program": "script"})
    said = "this time includes recording every call: no steps were timed with the recording off"
    assert said in headline(Run.of(made))
    made.info = dataclasses.replace(made.info, scenario=scenario)
    assert said not in headline(Run.of(made))


def test_a_comparison_takes_steps_timed_with_the_recording_off():
    predicted = Run.of(recording("sim"))
    found = compare(predicted, with_unrecorded(80, 81, 82))
    assert found.steps["step"].tolist() == [10, 11, 12]
    assert found.steps["measured_ns"].tolist() == [80, 81, 82]
    assert found.steps["predicted_ns"].tolist() == steady_steps(predicted.steps)["step_ns"].head(3).tolist()
    assert any("timed with the recording off" in line for line in compare_tables.about(found))
