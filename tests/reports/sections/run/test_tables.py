from __future__ import annotations

import dataclasses
from typing import Any

from reports.run import Run
from reports.sections.model import ReportTable, Words
from reports.sections.run.subject import RunView
from reports.sections.run.tables import PLAN
from reports.terminal import text
from scenarios.seam.trace import Recording
from tests.reports.recordings import by_hand, of_script
from tests.reports.shown import as_json, summarize

NOTES = of_script(by_hand()).info.plan_notes
SENTENCE = (
    "Plan, expected time of the bottleneck rank: TorchRec's 2.00 ms (rank 1; mean 1.50 ms), ours 2.50 ms (rank 0; mean"
    " 2.00 ms)"
)


def folded(recording: Recording) -> str:
    return " ".join(text.as_text(summarize(Run.of(recording))).split())


def on_page(recording: Recording) -> list[Any]:
    """Return the blocks of the page's section."""
    section = PLAN.show(RunView.of(Run.of(recording), 1), "page")
    assert section is not None
    return list(section.blocks)


def test_the_terminal_has_both_plans_in_a_line_and_what_they_rest_on():
    assert f"{SENTENCE} {' '.join(NOTES)} Recorded metrics" in folded(of_script(by_hand()))
    assert "Plan," not in folded(by_hand())


def test_the_page_has_them_table_by_table():
    placed, words, beside = on_page(of_script(by_hand()))
    assert isinstance(placed, ReportTable)
    assert isinstance(words, Words)
    assert isinstance(beside, ReportTable)
    assert words.text == "\n".join([SENTENCE, *NOTES])
    assert beside.grid("page").rows == [
        ["t0", "table_wise", "0", "table_wise", "1", "1.00 ms", "1.50 ms"],
        ["t1", "table_wise", "1", "table_wise", "0", "2.00 ms", "2.50 ms"],
    ]
    assert len(on_page(by_hand())) == 1


def test_where_there_is_no_plan_of_ours_its_sentence_stands_there():
    recording = by_hand(plan_notes=("no plan of ours: it does not fit",))
    assert "no plan of ours: it does not fit Recorded metrics" in folded(recording)
    _, words = on_page(recording)
    assert isinstance(words, Words)
    assert words.text == "no plan of ours: it does not fit"


def test_where_theirs_is_not_rated_only_ours_has_a_time():
    recording = of_script(by_hand())
    recording.plan = [dataclasses.replace(row, perf_ms=0.0) for row in recording.plan]
    run = Run.of(recording)
    assert run.plan_costs["planner"].tolist() == ["ours"]
    assert "bottleneck rank: ours 2.50 ms" in folded(recording)
    assert [row["planner"] for row in as_json(run)["plan_costs"]] == ["ours"]
