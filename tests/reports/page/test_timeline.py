from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from hypothesis import given

from reports.page.blocks import Timeline
from reports.page.run import shown_spans as module
from reports.page.run.shown_spans import choose
from reports.page.timeline import timeline
from reports.run import Run
from reports.sections.address import address
from reports.sections.run.subject import RunView
from tests.reports.recordings import PATIENT, by_hand, recordings, span, thin, with_spans

TYPICAL = 1


def of(run: Run, step: int | None, also: Sequence[tuple[int, int]] = ()) -> Timeline:
    found = timeline(RunView(run, step, also=also))
    assert not isinstance(found, str), found
    return found[0]


def data_of(run: Run, step: int | None = TYPICAL) -> dict[str, np.ndarray]:
    block = of(run, step)
    source = block.model.select_one({"name": "spans"})
    return {name: np.asarray(values) for name, values in source.data.items()}


def test_small_runs_are_shown_completely():
    shown = choose(Run.of(by_hand()), TYPICAL)
    assert (shown.steps, shown.ranks, shown.left_out) == ([0, 1, 2], [0, 1], 0)
    assert len(shown.spans) == 18


def test_a_bar_lies_where_its_span_does_in_ms_from_the_first():
    data = data_of(Run.of(by_hand()))
    longest = (data["right"] - data["left"]).argmax()
    assert (data["left"][longest] % 1e-4, data["right"][longest] - data["left"][longest]) == pytest.approx((0, 6e-5))
    assert data["left"].min() == 0.0
    assert data["right"].max() == pytest.approx(300e-6)


@PATIENT
@given(recordings())
def test_bars_of_a_row_never_overlap_and_operations_count_every_span_once(recording):
    run = Run.of(recording)
    if not len(choose(run, None).spans):
        assert isinstance(timeline(RunView(run, None)), str)
        return
    block = of(run, None)
    data = data_of(run, None)
    for lane in np.unique(data["lane"]):
        own = data["lane"] == lane
        order = np.lexsort((data["right"][own], data["left"][own]))
        left, right = data["left"][own][order], data["right"][own][order]
        assert (left[1:] >= right[:-1] - 1e-12).all()
    counts = np.bincount(data["operation"], minlength=len(block.operations))
    assert counts.tolist() == [operation.spans for operation in block.operations]


def test_where_there_is_no_room_for_all_steps_the_typical_and_the_slowest_come_first(monkeypatch):
    late = [dataclasses.replace(one, end_ns=900) for one in by_hand().spans if one.step == 2 and one.kind == "step"]
    others = [one for one in by_hand().spans if not (one.step == 2 and one.kind == "step")]
    run = Run.of(with_spans(by_hand(), *others, *late))
    monkeypatch.setattr(module, "MOST_SPANS", 12)
    shown = choose(run, TYPICAL)
    assert (shown.steps, shown.left_out) == ([1, 2], 6)


def test_where_there_is_no_room_for_all_ranks_those_are_shown_that_somebody_is_sent_to(monkeypatch):
    spans = [
        span(rank, kind, 0, 50 + rank, sequence=at, label="work", host=0)
        for rank in range(40)
        for at, kind in enumerate(("step", "compute", "all_reduce"))
    ]
    run = Run.of(with_spans(by_hand(world_size=40), *spans))
    monkeypatch.setattr(module, "MOST_LANES", 8)
    shown = choose(run, 0, also=[(0, 17)])
    assert len(shown.ranks) == 4
    assert {17, 39, 38, 0} == set(shown.ranks)
    block = of(run, 0, also=[(0, 17)])
    assert "Of 80 spans 8 are shown, those of ranks 0, 17, 38-39 in step 0" in block.note


def test_wherever_somebody_is_sent_there_are_spans_however_little_room_there_is(monkeypatch):
    spans = [
        span(rank, kind, 100 * step, 100 * step + 50, sequence=at, step=step, label="work", host=0)
        for step in range(20)
        for rank in range(10)
        for at, kind in enumerate(("step", "compute", "all_reduce"))
    ]
    run = Run.of(with_spans(by_hand(world_size=10), *spans))
    monkeypatch.setattr(module, "MOST_SPANS", 60)
    monkeypatch.setattr(module, "MOST_LANES", 8)
    also = [(19 - step, step % 10) for step in range(12)]
    shown = choose(run, 0, also)
    places = set(zip(shown.spans["step"].tolist(), shown.spans["rank"].tolist(), strict=True))
    assert [place for place in also if place not in places] == []
    assert len(shown.spans) <= 60
    assert shown.in_part == list(range(8, 20))
    block = of(run, 0, also)
    assert block.note.endswith("Of steps 8-19 only the ranks that comparisons link to are shown.")


def test_many_small_steps_are_read_together(monkeypatch):
    spans = [
        span(0, kind, step * 100, step * 100 + 50, step=step, sequence=at)
        for step in range(300)
        for at, kind in enumerate(("step", "compute"))
    ]
    run, asked = Run.of(with_spans(by_hand(world_size=1), *spans)), []
    parts = run.parts
    monkeypatch.setattr(run, "parts", lambda *columns, **more: asked.append(columns) or parts(*columns, **more))
    shown = choose(run, 150)
    assert (len(shown.steps), len(shown.spans), shown.left_out) == (300, 300, 0)
    assert len(asked) < 10


def test_a_thinned_run_shows_what_was_kept():
    shown = choose(Run.of(thin()), TYPICAL)
    assert (shown.steps, shown.ranks, len(shown.spans)) == ([1, 2], [1], 6)


def test_a_run_without_operations_has_no_timeline():
    assert isinstance(timeline(RunView(Run.of(with_spans(by_hand())), None)), str)
    assert isinstance(timeline(RunView(Run.of(with_spans(by_hand(), span(0, "step", 0, 5))), 0)), str)


def test_an_address_leads_to_its_span_whatever_the_names():
    run = Run.of(by_hand())
    parts = urlsplit(address("../a b/report.html", run, "x & y #1", (2_000_000, 3_000_000)))
    assert parts.path == "../a%20b/report.html"
    name, _, query = parts.fragment.partition("?")
    found = parse_qs(query)
    assert (name, found["operation"]) == ("timeline", ["x & y #1"])
    assert float(found["from"][0]) < 2.0
    assert float(found["until"][0]) > 3.0
