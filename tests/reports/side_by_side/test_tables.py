from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from reports.json_document import document
from reports.run import Run
from reports.sections.side_by_side import BESIDE, BesideView
from reports.side_by_side.frames import SideBySide, side_by_side
from reports.side_by_side.words import marks, more, sentences, value_shown
from reports.terminal import text
from reports.terminal.render import render_report
from scenarios.seam.trace import Recording
from tests.reports.recordings import SCENARIO, by_hand, span, thin, with_spans
from tests.reports.side_by_side.test_frames import change, of, slower


def render(both: SideBySide) -> str:
    return text.as_text(render_report(BESIDE, BesideView(both)))


def section(summary: str, title: str) -> list[str]:
    """Return a table's columns and rows, without blanks in a row."""
    lines = summary.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(title))
    rows = [lines[at + 1], *lines[at + 3 :]]
    return [" ".join(line.split()) for line in rows[: rows.index("")]]


def placed_elsewhere() -> Recording:
    recording = slower()
    recording.plan = [dataclasses.replace(recording.plan[0], rank=1), recording.plan[1]]
    return recording


def test_differing_settings_come_first_with_their_effects():
    summary = render(of(by_hand(), placed_elsewhere()))
    assert summary.splitlines()[:9] == [
        "2 runs side by side, relative to the first:",
        "run0: by_hand, predicted, 2 ranks",
        "run1: slower, predicted, 2 ranks",
        "",
        "run1: run.batch_size is 128 instead of 64; same samples/s (1,280,000,000 instead",
        "of 1,280,000,000); a step of 256 instead of 128 samples takes 200 ns instead of",
        "100 ns.",
        "Steps train on different numbers of samples: compare samples/s.",
        "",
    ]
    assert section(summary, "Settings that differ; 12 identical") == ["setting run0 run1", "run.batch_size 64 128"]
    step = section(summary, "Step time, median of steady steps, and breakdown, means over ranks")
    assert step == [
        "run0 run1 change",
        "samples/s 1,280,000,000 1,280,000,000 +0.0 %",
        "samples per step 128 256 +100.0 %",
        "step time 100 ns 200 ns +100.0 %",
        "compute 68 ns 135 ns +100.0 %",
        "communication 45 ns 90 ns +100.0 %",
        "hidden 15 ns 30 ns +100.0 %",
        "exposed transfer 30 ns 60 ns +100.0 %",
        "waiting for others 0 ns 0 ns -",
        "idle 0 ns 0 ns -",
        "step skew 2 ns 5 ns +100.0 %",
        "payload per rank 1000 B 1000 B +0.0 %",
        "max memory 12.0 KiB 12.0 KiB +0.0 %",
        "hottest link, mean 50.0 % 25.0 % -50.0 %",
        "... while busy 100.0 % 100.0 % +0.0 %",
        "compute, max/mean 1.04 1.04 +0.0 %",
        "ids, max/mean 1.50 2.00 +33.3 %",
    ]
    assert section(summary, "Operations per rank and step, by change; batches differ") == [
        "operation run0 run1 change transfer waiting",
        "forward 50 ns 100 ns +50 ns",
        "compressed gradients 45 ns 90 ns +45 ns +30 ns 0 ns",
        "backward 30 ns 60 ns +30 ns",
        "other update - 10 ns +10 ns",
        "update 5 ns - -5 ns",
    ]
    assert section(summary, "Tables placed differently; 1 placed identically") == [
        "table run0 run1",
        "t0 table_wise 0 table_wise 1",
    ]


def test_of_three_runs_values_and_changes_stand_apart():
    summary = render(of(by_hand(), slower(), by_hand()))
    assert section(summary, "Step time, median")[:4:3] == ["run0 run1 run2", "step time 100 ns 200 ns 100 ns"]
    assert section(summary, "The same, changes against run0")[:4:3] == ["run1 run2", "step time +100.0 % +0.0 %"]
    assert section(summary, "Operations")[:2] == ["operation run0 run1 - run0 run2 - run0", "forward 50 ns +50 ns 0 ns"]
    assert "run2: the same settings; same step time (100 ns)." in summary


def test_of_more_runs_each_is_a_row():
    summary = render(of(by_hand(), slower(), by_hand(), by_hand(), placed_elsewhere()))
    assert section(summary, "Settings that differ") == [
        "setting value runs",
        "run.batch_size 64 run0, run2, run3",
        "run.batch_size 128 run1, run4",
    ]
    assert section(summary, "Step time, median")[1:3] == [
        "run0 1,280,000,000 +0.0 % 68 ns 30 ns 0 ns 0 ns 2 ns",
        "run1 1,280,000,000 +0.0 % 135 ns 60 ns 0 ns 0 ns 5 ns",
    ]
    assert section(summary, "Operations")[:2] == ["operation run0 largest change in", "forward 50 ns +50 ns run1"]
    assert section(summary, "Tables placed differently")[1:] == [
        "t0 table_wise 0 run0, run1, run2, run3",
        "t0 table_wise 1 run4",
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 30])
def test_the_summary_fits_80_columns(count):
    names = [f"criteo_dlrm_2x4-20260102-03040{at}" for at in range(count)]
    recordings = [
        placed_elsewhere() if at % 2 else change({"a_setting_of_a_very_long_name" * 2: at}) for at in range(count)
    ]
    both = side_by_side([(name, Run.of(one)) for name, one in zip(names, recordings, strict=True)])
    summary = render(both)
    assert max(map(len, summary.splitlines())) <= 80
    assert "\x1b" not in summary
    marked = marks(names)
    assert (marked[0], len(set(marked))) == ("A", count)


def test_missing_parts_are_stated():
    bare = thin(ranks=(), steps=())
    bare.plan = []
    summary = render(of(by_hand(), bare))
    assert "run1: by_hand, predicted, 2 ranks; spans kept of 0 of 2 ranks in 0 steps; 12\nothers left out" in summary
    assert "Plan: fewer than two runs have one." in summary
    assert section(summary, "Operations")[:2] == ["operation run0", "forward 50 ns"], (
        "the longest first, where nothing changes"
    )
    early = by_hand(complete=False, error="interrupted")
    assert "run1: by_hand, predicted, 2 ranks; ENDED EARLY: interrupted" in render(of(by_hand(), early))
    nothing = render(of(Recording(info=bare.info), Recording(info=bare.info)))
    assert "Settings: no differences; 13 identical." in nothing
    assert "no two step times to compare" in nothing
    assert "Operations: no rank of any run completed a step." in nothing


def test_a_step_that_waits_for_a_slow_rank_says_so():
    def with_rank_1_at(ns: int) -> Recording:
        spans = []
        for rank in range(4):
            began = ns if rank == 1 else 25
            spans += [
                span(rank, "step", 0, ns + 5),
                span(rank, "compute", 0, began, label="forward", kernel="gemm"),
                span(rank, "all_reduce", began, ns + 5, label="gradients", group="world", call=0),
            ]
        return with_spans(by_hand(world_size=4), *spans)

    operations = section(render(of(with_rank_1_at(25), with_rank_1_at(75))), "Operations per rank and step")
    assert "gradients 5 ns 55 ns +50 ns 0 ns +38 ns" in operations
    assert sentences(of(with_rank_1_at(25), with_rank_1_at(75))) == [
        "run1: the same settings; the step takes 2.67 times as long (80 ns instead of 30 ns), mostly waiting for other"
        " ranks (+38 ns), 100.0 % of that for rank 1: its computations take 3.0 times as long as equal ones on other"
        " ranks."
    ]


def test_tables_that_differ_alike_are_one_line():
    def with_rows(rows: int) -> Recording:
        tables = [{"name": name, "rows": rows} for name in ("t0", "t1", "t2")]
        return change({"model": {"tables": tables}})

    assert section(render(of(with_rows(10), with_rows(2000))), "Settings that differ") == [
        "setting run0 run1",
        "model.tables[*].rows (3 tables) 10 2,000",
    ]


def test_a_sentence_says_the_first_settings_and_what_became_of_the_step():
    faster = change({"library": "nccl", "payload": None, "extra": True, "batch_size": 2, "fidelity": "links"})
    faster.spans = [
        dataclasses.replace(one, start_ns=one.start_ns // 4, end_ns=one.end_ns // 4) for one in faster.spans
    ]
    assert sentences(of(by_hand(), faster)) == [
        "run1: run.batch_size is 2 instead of 64, no run.payload, run.fidelity is links instead of flows and 2 more"
        " settings differ; 87.5 % fewer samples/s (160,000,000 instead of 1,280,000,000), mostly by compute per sample;"
        " a step of 4 instead of 128 samples takes 25 ns instead of 100 ns."
    ]
    faster.info.scenario["batch_size"] = 64
    (said,) = sentences(of(by_hand(), faster))
    assert said.endswith("; the step is 4 times as fast (25 ns instead of 100 ns), mostly compute (-50 ns).")
    assert sentences(of(by_hand(), change({"extra": True}, world="real", played_on="this machine"))) == [
        "run1: it is measured instead of predicted, extra is true (not set in run0); same step time (100 ns)."
    ]


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("batch_size", "8192", "8,192"),
        ("cluster.host.nics.link.bytes_per_s", "25000000000.0", "25.0 GB/s"),
        ("cluster.host.gpu.memory_bytes", "2147483648", "2.00 GiB"),
        ("cluster.host.gpu.ramps_ns.gemm", "8000", "8.00 us"),
        ("compression.kind", "none", "none"),
        ("model.top", "64, 32, 1", "64, 32, 1"),
        ("ids.exponent", "1.05", "1.05"),
        ("hosts_share_cores", "false", "false"),
        ("model", "", "-"),
    ],
)
def test_settings_are_shown_with_their_units(key, value, shown):
    assert value_shown(key, value) == shown


def test_differences_have_signs():
    assert [more(1500.0), more(-1500.0), more(0.0)] == ["+1.50 us", "-1.50 us", "0 ns"]


def test_json_has_the_frames_whole():
    both = of(by_hand(), placed_elsewhere())
    content: dict[str, Any] = json.loads(json.dumps(document(BESIDE, BesideView(both)), allow_nan=False))
    head = {key: content.pop(key) for key in ("base", "runs", "same_settings", "same_tables")}
    assert head == {"base": "run0", "runs": ["run0", "run1"], "same_settings": 12, "same_tables": 1}
    assert {name: len(rows) for name, rows in content.items()} == {
        name: len(frame) for name, frame in both.frames().items()
    }
    assert content["results"][1]["step_change"] == 1.0
    assert content["results"][1]["idle_change"] is None
    assert SCENARIO["batch_size"] == int(content["settings"][0]["value"])
