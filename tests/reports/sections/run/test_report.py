from __future__ import annotations

import dataclasses
import json

import pandas as pd
from hypothesis import given

from reports.run import Run
from reports.sections.run.ranks import RANKS
from reports.sections.run.subject import RunView
from reports.store import run_folder as store
from reports.terminal import text
from reports.terminal.rows import records
from scenarios.seam.memory import ACTIVATIONS
from scenarios.seam.trace import MemoryRow, Metric, Recording, Span
from tests.lanes import examples
from tests.reports import shown as tables
from tests.reports.recordings import by_hand, info, on_nccl, recordings, span, step_of, thin, with_spans
from tests.reports.refusals import refusal


def render(recording: Recording, step: int | None = None) -> str:
    return text.as_text(tables.summarize(Run.of(recording), step))


def section(summary: str, title: str) -> list[list[str]]:
    """Return the rows of one table as words."""
    lines = summary.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(title))
    rows = lines[at + 3 :]
    return [line.split() for line in rows[: rows.index("")]]


def test_the_headline_says_what_ran_and_how_long_a_step_takes():
    assert render(by_hand()).splitlines()[:3] == [
        "by_hand: predicted, 2 ranks on 2 hosts, library gloo, payload values, fidelity",
        "flows",
        "step time 100 ns, the median of steps 1-2",
    ]
    assert "1,280,000,000 samples/s, 64 samples per rank" in render(by_hand())
    assert render(by_hand(world="real")).startswith(
        "by_hand: measured, 2 ranks on 2 hosts, library gloo, payload values"
    )


def test_the_headline_says_that_hosts_were_emulated():
    recording = by_hand(world="real")
    recording.info = dataclasses.replace(recording.info, played_on="emulated hosts")
    assert render(recording).startswith("by_hand: measured, 2 ranks on 2 emulated hosts, library gloo")


def test_steps_of_other_operations_are_told_apart():
    assert [row[-1] for row in section(render(by_hand()), "Steps")] == ["first", "changed", "same"]
    spans = [one for step in range(20) for one in step_of((100 + step) * step, step, compressed=step >= 5)]
    rows = section(render(with_spans(by_hand(), *spans)), "Steps")
    assert [(row[0], row[-1]) for row in rows] == [("0-4", "first"), ("5-19", "changed")]


def test_the_critical_path_is_that_of_a_typical_step_or_the_one_asked_for():
    assert "Critical path of step 1, in order" in render(by_hand())
    rows = section(render(by_hand(), step=0), "Critical path of step 0, in order")
    assert rows == [
        ["forward", "compute", "60", "ns", "60.0", "%"],
        ["gradients", "all_reduce", "35", "ns", "35.0", "%"],
        ["update", "compute", "5", "ns", "5.0", "%"],
        ["total", "100", "ns", "100.0", "%"],
    ]
    assert refusal(render, by_hand(), step=9) == "--step 9: the run has steps 0 to 2"


def test_operations_say_what_was_hidden():
    rows = section(render(by_hand()), "Operations per rank and step, steps 1-2")
    assert ["compressed", "gradients", "1", "45", "ns", "55", "ns", "1000", "B", "0.0", "%", "33.3", "%"] in rows
    assert not any(row[0] == "gradients" for row in rows), "step 0 did other things than the headline's steps"
    assert ["backward", "1", "30", "ns", "30", "ns"] in rows


def test_dominant_spans_of_the_critical_path_come_before_imbalance():
    def exchange(at: int, label: str) -> Span:
        return span(0, "all_to_all_single", at, at + 30, label=label, dtype="int64")

    def product(at: int, ns: int) -> Span:
        return span(0, "compute", at, at + ns, label=f"layer {at}", kernel="gemm", dtype="float32")

    ids = [exchange(30 * at, label) for at, label in enumerate(("sizes", "lengths", "values"))]
    layers = [product(90, 20), product(110, 5), product(115, 5), product(120, 6)]
    spans = [span(0, "step", 0, 140), *ids, *layers, span(0, "compute", 126, 134, label="update", kernel="optimizer")]
    summary = render(with_spans(by_hand(world_size=1), *spans))
    found = summary[summary.index("What dominates the critical path") :].split("\n\n")[0]
    assert " ".join(found.split()) == (
        "What dominates the critical path of step 0 1. all_to_all_single of int64: 90 ns of the 140 ns step (64.3 %):"
        " sizes 30 ns, lengths 30 ns, values 30 ns. 2. gemm (matrix products) in float32: 36 ns of the 140 ns step"
        " (25.7 %): layer 90 20 ns, layer 120 6 ns, layer 110 5 ns and 1 more."
    )
    run = Run.of(with_spans(by_hand(world_size=1), *spans))
    dominant = tables.as_json(run)["dominant"]
    assert [(row["kind"], row["dtype"], row["duration_ns"]) for row in dominant[:2]] == [
        ("all_to_all_single", "int64", 90),
        ("compute", "float32", 36),
    ]
    assert "D dense 25.7 %   O optimizer 5.7 %   x other exchanges 64.3 %" in repr(run)


def test_a_prediction_says_what_it_rests_on_and_a_measurement_does_not():
    known = "profile dgx_h100: datasheet values and assumptions, not calibrated"
    scenario = {**by_hand().info.scenario, "rests_on": known}
    assert known in render(by_hand(scenario=scenario)).splitlines()
    assert known not in render(by_hand(scenario=scenario, world="real"))
    assert tables.as_json(Run.of(by_hand(scenario=scenario)))["rests_on"] == known


def test_a_headline_says_for_whom_ranks_wait_and_why():
    def of_rank(rank: int, ns: int) -> list[Span]:
        return [
            span(rank, "step", 0, 60),
            span(rank, "compute", 0, ns, label="forward", kernel="gemm", flops=1.0),
            span(rank, "all_reduce", ns, 60, label="gradients", group="world", call=0),
        ]

    spans = [one for rank in range(4) for one in of_rank(rank, 50 if rank == 2 else 25)]
    summary = " ".join(render(with_spans(by_hand(world_size=4), *spans)).split())
    said = "ranks wait 19 ns of a step (31.2 %) for others to arrive, 100.0 % of that for rank 2: its computations take"
    assert f"{said} 2.0 times as long as equal ones on other ranks memory: fits" in summary
    assert "waiting for other ranks 19 ns 31.2 % 25 ns 0 1.33" in summary
    assert "wait" not in render(by_hand()).splitlines()[2]
    late = tables.as_json(Run.of(with_spans(by_hand(world_size=4), *spans)))["late_ranks"]
    assert late == [{"rank": 2, "rank_count": 1, "wait_ns": 18.75, "share": 1.0}]


def test_kinds_and_streams_are_named_where_a_label_is_not_enough():
    spans = [
        span(0, "step", 0, 9),
        span(0, "all_reduce", 0, 4, label="same"),
        span(0, "compute", 0, 3, label="same"),
        span(0, "compute", 0, 2, label="same", stream="side"),
        span(0, "barrier", 0, 1),
    ]
    rows = section(render(with_spans(by_hand(), *spans)), "Operations")
    assert [row[:2] for row in rows[:3]] == [["same", "(all_reduce)"], ["same", "(compute)"], ["same", "@side"]]
    assert rows[3][:2] == ["barrier", "1"]


FORMULA = "NCCL's own formula where it differs by over 5 %, "


def test_nccl_s_own_formula_stands_beside_the_link_model_where_they_differ():
    recording = on_nccl(by_hand(), formula_ns=28)
    assert section(render(recording), f"{FORMULA}steps 1-2") == [
        ["compressed", "gradients", "2", "35", "ns", "28", "ns", "+25.0", "%"]
    ]
    assert tables.as_json(Run.of(recording))["formulas"] == records(Run.of(recording).formulas)
    alike = on_nccl(by_hand(), formula_ns=36)
    assert FORMULA not in render(alike)
    assert len(tables.as_json(Run.of(alike))["formulas"]) == 2
    assert FORMULA not in render(by_hand())
    assert tables.as_json(Run.of(by_hand()))["formulas"] == []


def test_formulas_that_differ_most_come_first_and_the_others_are_counted():
    calls = [
        span(0, "all_reduce", 0, 40 + at, label=f"l{at:02}", group="world", call=at, formula_ns=50) for at in range(24)
    ]
    summary = render(with_spans(by_hand(), span(0, "step", 0, 99), *calls))
    assert f"{FORMULA}step 0; 9 more not shown" in summary
    shown = ["l23", "l22", "l21", "l00", "l20", "l01", "l19", "l02", "l18", "l03"]
    assert [row[0] for row in section(summary, FORMULA)] == shown


def test_tables_that_load_the_worst_rank_are_named():
    summary = render(by_hand())
    assert section(summary, "Balance of tables")[0] == ["planner's", "ids", "per", "step", "300", "1", "200", "1.50"]
    assert section(summary, "Tables that cause imbalance")[0] == ["t1", "table_wise", "ids", "300", "150", "+150"]


def test_tables_that_load_a_rank_are_told_apart_by_their_names():
    recording = by_hand()
    recording.plan = [
        dataclasses.replace(row, table=table, sharding_type=sharding, ids_per_step=ids)
        for row in recording.plan
        for table, sharding, ids in (
            ("user_clicks_of_seven_days", "table_column_wise", 2e5 * row.rank),
            ("user_clicks_of_thirty_days", "table_row_wise", 1e5 * row.rank),
        )
    ]
    summary = render(recording)
    assert max(map(len, summary.splitlines())) <= 80
    assert [row[:2] for row in section(summary, "Tables that cause imbalance")[:4]] == [
        ["user_clicks_of_seven_days"],
        ["table_c…n_wise", "ids"],
        ["user_clicks_of_thirty_days"],
        ["table_row_wise", "ids"],
    ]


def test_memory_is_that_of_the_fullest_rank():
    summary = render(by_hand())
    assert "Memory of the fullest rank, 1, capacity 16.0 KiB" in summary
    assert section(summary, "Memory")[-1] == ["total", "12.0", "KiB", "75.0", "%", "always"]


def test_a_headline_says_whether_it_fits_and_what_would_help():
    assert "memory: fits with 4.00 KiB to spare on the fullest rank (1)" in render(by_hand())
    full = by_hand()
    full.memory.append(MemoryRow(rank=1, part="activations", size_bytes=6144, capacity_bytes=16384, kind=ACTIVATIONS))
    said = (
        "MEMORY DOES NOT FIT: 2.00 KiB too much on the fullest rank (1); expected a smaller batch_size, or activation"
    )
    assert said in " ".join(render(full).split())
    assert (Run.of(by_hand()).fits, Run.of(full).fits) == (True, False)


def test_links_come_by_class_and_the_hottest_first():
    summary = render(by_hand())
    title = "Links: load, mean over the run, and of the hottest also while it is busy"
    assert section(summary, title)[0] == ["nic", "2", "225", "B", "37.5", "%", "50.0", "%", "100.0", "%"]
    hottest = section(summary, "Hottest links")
    assert [row[0] for row in hottest] == ["nic1", "nic0", "hbm0"]
    assert hottest[0][-6:] == ["50.0", "%", "50.0", "%", "100.0", "%"]


def test_many_steps_of_metrics_show_both_ends():
    recording = by_hand()
    recording.metrics = [Metric(rank=0, step=step, name="loss", value=step / 8) for step in range(100)]
    rows = section(render(recording), "Recorded metrics")
    assert [row[0] for row in rows] == ["0", "1", "2", "3", "4", "5", "...", "94", "95", "96", "97", "98", "99"]
    assert rows[-1] == ["99", "12.375"]


def test_missing_recordings_are_stated():
    empty = render(Recording(info=info(complete=False, error="rank 1 was killed by signal 9", world="real")))
    assert [line for line in empty.splitlines() if line] == [
        "by_hand: measured, 2 ranks on 2 hosts, library gloo, payload values",
        "THIS RUN ENDED EARLY: rank 1 was killed by signal 9",
        "What would help: not predicted.",
        "Balance of tables: the scenario has no embedding tables.",
        "Links: not available for real runs.",
        "Step times: no rank completed a step.",
        "Hidden and exposed: no rank completed a step.",
        "Memory: a measured run does not know its parts.",
        "Recorded metrics: the program recorded no metrics.",
    ]


@examples(8)
@given(recordings())
def test_any_run_fits_80_columns_without_colour_codes(recording):
    summary = render(recording)
    assert max(map(len, summary.splitlines())) <= 80
    assert "\x1b" not in summary
    json.dumps(tables.as_json(Run.of(recording)), allow_nan=False)


def test_spans_left_out_on_purpose_are_stated_and_not_counted():
    summary = render(thin())
    assert "\nspans kept of 1 of 2 ranks in 2 steps; 12 others left out\n" in summary
    assert "\nwaiting for ranks without kept spans counts as transfer\n" in summary
    assert "step time 100 ns, the median of steps 1-2\n" in summary
    assert "\nOperations per rank and step, steps 1-2, seen on 1 of 2 ranks\n" in summary
    assert "\nCritical path of step 1, in order, seen on 1 of 2 ranks\n" in summary
    title = "Step breakdown over ranks, steps 1-2, seen on 1 of 2 ranks"
    assert section(summary, title)[0] == ["compute", "65", "ns", "65.0", "%", "65", "ns", "1", "1.00"]
    assert tables.as_json(Run.of(thin()))["thinned"] == {
        "ranks": [1],
        "steps": [1, 2],
        "left_out": 12,
        "phases": [1],
        "steady": None,
    }


def test_steps_that_were_left_out_cannot_be_shown():
    assert refusal(render, thin(), step=0) == "--step 0: its spans were left out; expected steps 1-2"
    nothing = with_spans(thin(ranks=()), *(one for one in thin().spans if one.kind == "step"))
    summary = render(nothing)
    assert "spans kept of 0 of 2 ranks" in summary
    assert "\nHidden and exposed: this run has not kept spans of these steps.\n" in summary
    assert "waited for" not in summary


def test_json_says_what_the_frames_say():
    run = Run.of(by_hand())
    content = json.loads(json.dumps(tables.as_json(run), allow_nan=False))
    assert content["median_step_ns"] == 100.0
    assert content["median_of_steps"] == [1, 2]
    operations = [
        {key: None if pd.isna(value) else value for key, value in row.items()} for row in records(run.operations)
    ]
    assert content["operations"] == operations
    assert content["by_what"][0] == {"what": "dense", "duration_ns": 60, "share": 0.6}
    assert (content["arithmetic"], content["what_if"]) == (None, [])
    assert [row["label"] for row in content["waited_for"][:3]] == ["forward", "gradients", "update"]


def test_a_run_without_steps_has_no_median():
    content = tables.as_json(Run.of(dataclasses.replace(by_hand(), spans=[])))
    assert (content["median_step_ns"], content["median_of_steps"]) == (None, [])


def test_classes_of_ranks_are_a_table_of_the_summary_and_of_the_page(tmp_path):
    """The largest first; sixteen are shown, and JSON has all."""
    recording = by_hand()
    classes = ((0, 1, "0"), (1, 40, "1-40"), *((rank, 2, f"{rank}-{rank + 1}") for rank in range(41, 75, 2)))
    recording.info = dataclasses.replace(recording.info, rank_classes=classes)
    run = store.load(store.write(recording, tmp_path / "run"))
    title = "Classes of ranks, one rank of each simulated"
    shown = section(text.as_text(tables.summarize(run)), title)
    assert shown[:2] == [["rank", "1", "40", "1-40"], ["rank", "41", "2", "41-42"]]
    assert (len(shown), shown[-1]) == (17, ["3", "smaller", "classes", "not", "shown"])
    found = tables.as_json(run)["rank_classes"]
    assert found[0] == {"rank": 0, "count": 1, "ranks": "0"}
    assert len(found) == len(classes)
    ranks = RANKS.show(RunView.of(run), "page")
    assert ranks is not None
    assert ranks.blocks[-1].title == title
    assert title not in render(by_hand())
