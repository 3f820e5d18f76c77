"""What the first screen and JSON say of the kernels of a prediction on GPUs."""

from __future__ import annotations

import dataclasses

import pytest

from reports.analysis.by_role import REDUCTIONS
from reports.run import Run
from reports.sections.model import ReportTable
from reports.sections.run.causes import dominant, largest_part
from reports.sections.run.headline import headline
from reports.sections.run.operations import KERNELS, LAYERS, communication, layers
from reports.sections.run.subject import RunView
from tests.reports.recordings import by_hand, with_kernels, with_layers
from tests.reports.shown import as_json

LINE = "kernels without a law, priced by a roofline: {} of a step's kernel time"


def test_the_first_screen_says_what_share_has_no_law_below_what_the_prediction_rests_on() -> None:
    recording = with_kernels(by_hand(), 8)
    recording.info = dataclasses.replace(recording.info, scenario={**recording.info.scenario, "rests_on": "profile x"})
    lines = headline(Run.of(recording))
    assert lines[1:3] == ["profile x", LINE.format("12.5 %")]


@pytest.mark.parametrize(("share", "said"), [(1.0, "100.0 %"), (0.0005, "0.1 %"), (0.0004, "under 0.1 %")])
def test_a_share_is_said_to_a_digit(share: float, said: str) -> None:
    recording = with_kernels(by_hand())
    recording.kernels = [dataclasses.replace(recording.kernels[0], share=share)]
    assert LINE.format(said) in headline(Run.of(recording))


def test_kernels_are_not_mentioned_if_all_have_laws_or_none_ran() -> None:
    lawful = with_kernels(by_hand())
    lawful.kernels = lawful.kernels[1:]
    for recording in (by_hand(), by_hand(world="real"), lawful):
        assert not any(line.startswith("kernels") for line in headline(Run.of(recording)))


def test_json_has_all_kernels_and_the_shares_of_what_prices_them() -> None:
    content = as_json(Run.of(with_kernels(by_hand(), 4)))
    assert content["kernels_priced_by"] == {"law": 0.75, "roofline": 0.25}
    assert len(content["kernels"]) == 4
    assert list(content["kernels"][0]) == ["operator", "shapes", "priced_by", "predicted_us", "count", "share"]
    bare = as_json(Run.of(by_hand()))
    assert (bare["kernels"], bare["kernels_priced_by"]) == ([], None)


def test_communication_is_added_up_by_what_it_is() -> None:
    view = RunView.of(Run.of(by_hand()))
    found = communication(view)
    own = view.run.operations_of(view.kept_steps).query("part == 'communication'")
    assert found["what"].tolist() == [REDUCTIONS]
    assert found["bytes_sent"].tolist() == [own["bytes_sent"].sum()]
    parts = found["transfer_ns"] + found["wait_ns"] + found["hidden_ns"]
    assert parts.tolist() == found["mean_ns"].tolist() == [own["mean_ns"].sum()]


def test_layers_are_named_where_the_time_of_a_step_is_shown() -> None:
    view = RunView.of(Run.of(with_layers(with_kernels(by_hand()))))
    assert layers(view).set_index("layer").T.to_dict() == {
        "cross.* x 2": {"forward_ns": 37.5, "backward_ns": 22.5, "launch_ns": 0, "both_ns": 60, "share": 0.6},
        "top": {"forward_ns": 12.5, "backward_ns": 7.5, "launch_ns": 0, "both_ns": 20, "share": 0.2},
    }
    assert view.step is not None
    named = "cross.* x 2 forward 45 ns, top forward 15 ns"
    assert dominant(view.run, view.step)[0] == f"gemm (matrix products): 60 ns of the 100 ns step (60.0 %): {named}"
    shares = "cross.* x 2 45.0 %, top 15.0 %"
    assert largest_part(view.run, view.step) == f"gemm (matrix products): 60.0 % of the step: {shares}"
    shown = KERNELS.show(view, "page")
    assert shown is not None
    (table,) = shown.blocks
    assert isinstance(table, ReportTable)
    grid = table.grid("page")
    place = [column.title for column in grid.columns].index("layers")
    assert [row[place] for row in grid.rows] == ["cross.* x 2, top", ""]


def test_runs_without_layers_show_none() -> None:
    view = RunView.of(Run.of(with_kernels(by_hand())))
    assert LAYERS.show(view, "terminal") is None
    assert "cross" not in "".join(dominant(view.run, view.step or 0))
    assert as_json(view.run)["layers"] == []
