from __future__ import annotations

from hypothesis import given

from reports.run import Run
from scenarios.seam.trace import Recording, Span
from tests.reports.recordings import PATIENT, by_hand, info, recordings, span

COLLECTIVE = {"group": "world", "call": 0}


def path(run: Run, step: int = 0) -> list[tuple[int, str, str, int, int]]:
    own = run.critical_path[run.critical_path["step"] == step]
    return list(own[["rank", "kind", "label", "from_ns", "to_ns"]].itertuples(index=False, name=None))


def path_of(*spans: Span) -> list[tuple[int, str, str, int, int]]:
    world_size = len({one.rank for one in spans})
    return path(Run.of(Recording(info=info(world_size=world_size), spans=list(spans))))


def test_a_collective_is_waited_for_since_its_last_member_entered():
    run = Run.of(by_hand())
    assert path(run) == [
        (1, "compute", "forward", 0, 60),
        (1, "all_reduce", "gradients", 60, 95),
        (1, "compute", "update", 95, 100),
    ]
    assert path(run, 2) == [
        (1, "compute", "forward", 200, 260),
        (1, "all_reduce", "compressed gradients", 260, 295),
        (1, "compute", "update", 295, 300),
    ]


def test_the_walk_goes_on_at_the_member_that_entered_last():
    assert path_of(
        span(0, "step", 0, 100),
        span(0, "compute", 0, 10, label="short"),
        span(0, "all_reduce", 10, 90, label="sum", **COLLECTIVE),
        span(0, "compute", 90, 100, label="after"),
        span(1, "step", 0, 90),
        span(1, "compute", 0, 70, label="long"),
        span(1, "all_reduce", 70, 90, label="sum", **COLLECTIVE),
    ) == [
        (1, "compute", "long", 0, 70),
        (0, "all_reduce", "sum", 70, 90),
        (0, "compute", "after", 90, 100),
    ]


def test_calls_of_another_group_or_number_are_other_collectives():
    assert path_of(
        span(0, "step", 0, 50),
        span(0, "all_reduce", 10, 50, label="sum", **COLLECTIVE),
        span(1, "step", 0, 50),
        span(1, "all_reduce", 30, 50, label="sum", group="world", call=1),
        span(2, "step", 0, 50),
        span(2, "all_reduce", 40, 50, label="sum", group="intra", call=0),
    ) == [(0, "host", "", 0, 10), (0, "all_reduce", "sum", 10, 50)]


def test_a_communication_that_ended_under_computation_held_nothing_up():
    assert path_of(
        span(0, "step", 0, 61),
        span(0, "all_reduce", 0, 40, label="hidden", wait_from_ns=60, wait_until_ns=61, sequence=1, **COLLECTIVE),
        span(0, "compute", 0, 30, label="work", sequence=2),
    ) == [(0, "compute", "work", 0, 30), (0, "host", "", 30, 61)]


def test_a_span_that_was_queued_waited_for_what_ended_before_it():
    assert path_of(
        span(0, "step", 0, 100),
        span(0, "all_reduce", 0, 45, label="first", wait_from_ns=100, wait_until_ns=100, sequence=1, stream="side"),
        span(0, "compute", 0, 20, label="work", sequence=1),
        span(0, "all_reduce", 45, 95, issued_ns=5, label="second", wait_from_ns=20, sequence=2, stream="side"),
    ) == [
        (0, "all_reduce", "first", 0, 45),
        (0, "all_reduce", "second", 45, 95),
        (0, "host", "", 95, 100),
    ]


def test_of_two_that_end_together_the_one_on_the_same_stream_is_the_cause():
    spans = [
        span(0, "step", 0, 30),
        span(0, "compute", 0, 20, label="here", sequence=1),
        span(0, "compute", 0, 20, label="there", sequence=9, stream="side"),
        span(0, "compute", 20, 30, label="next", sequence=2),
    ]
    assert path_of(*spans) == [(0, "compute", "here", 0, 20), (0, "compute", "next", 20, 30)]


def test_spans_that_began_earlier_count_from_the_steps_start():
    assert path_of(
        span(0, "compute", 0, 60, step=-1, label="earlier"),
        span(0, "step", 50, 80),
    ) == [(0, "compute", "earlier", 50, 60), (0, "host", "", 60, 80)]


def test_a_member_that_seems_to_enter_after_the_end_takes_no_time():
    assert path_of(
        span(0, "step", 0, 50),
        span(0, "all_reduce", 10, 40, label="sum", **COLLECTIVE),
        span(1, "step", 0, 45),
        span(1, "all_reduce", 42, 44, label="sum", **COLLECTIVE),  # hosts' clocks agree only so far
    ) == [(1, "host", "", 0, 40), (0, "host", "", 40, 50)]


def test_operations_add_up_in_the_order_in_which_they_were_first_waited_for():
    waited = Run.of(by_hand()).waited_for
    first = waited[waited["step"] == 0]
    assert first["label"].tolist() == ["forward", "gradients", "update"]
    assert first["order"].tolist() == [0, 1, 2]
    assert first["duration_ns"].tolist() == [60, 35, 5]
    assert first["share"].tolist() == [0.6, 0.35, 0.05]
    assert waited.groupby("step")["duration_ns"].sum().tolist() == [100, 100, 100]


@PATIENT
@given(recordings())
def test_segments_touch_and_add_up_to_the_step_time(recording):
    run = Run.of(recording)
    for step, start, end in zip(run.steps["step"], run.steps["start_ns"], run.steps["end_ns"], strict=True):
        own = run.critical_path[run.critical_path["step"] == step]
        bounds = [start, *own["to_ns"].tolist()]
        assert bounds[-1] == end
        assert own["from_ns"].tolist() == bounds[:-1]
        assert own["duration_ns"].sum() == end - start
        assert bool((own["duration_ns"] > 0).all())
        assert own["order"].tolist() == list(range(len(own)))


@PATIENT
@given(recordings())
def test_a_segment_lies_inside_a_span_of_its_operation_on_its_rank(recording):
    run = Run.of(recording)
    for segment in run.critical_path.itertuples():
        spans = run.spans[(run.spans["kind"] == segment.kind) & (run.spans["label"] == segment.label)]
        around = (
            (spans["rank"] == segment.rank)
            & (spans["start_ns"] <= segment.from_ns)
            & (spans["end_ns"] >= segment.to_ns)
            & (spans["stream"] == segment.stream)
        )
        assert segment.kind == "host" or bool(around.any())
