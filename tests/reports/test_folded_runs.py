"""Folded runs, in which hosts represent others: every figure is of all ranks and links, simulated or represented."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.compare.comparison import compare
from reports.kineto import compute_times as times
from reports.run import Run
from reports.store import run_folder as store
from reports.terminal import text
from scenarios.seam.trace import MemoryRow, Metric, PlanRow, Recording, Thinned
from tests.reports import shown as tables
from tests.reports.perfetto.test_trace import trace
from tests.reports.recordings import PATIENT, by_hand, info, link, on_nccl, recordings, with_spans
from tests.reports.refusals import refusal

# Ranks 0 and 1 of `by_hand` stand for so many hosts of one GPU each.
COUNTS = {0: 1, 1: 15}
_ON_RANKS = 1000


def folded(recording: Recording, counts: dict[int, int], **changes: Any) -> Recording:
    """The recording, folded: each rank (one per host) represents so many; metrics and memory, too."""
    world = sum(counts.values())
    return Recording(
        info=dataclasses.replace(
            recording.info, world_size=world, host_counts=tuple(sorted(counts.items())), **changes
        ),
        spans=[dataclasses.replace(one, rank_count=counts[one.rank]) for one in recording.spans],
        metrics=recording.metrics,
        plan=recording.plan,
        memory=[dataclasses.replace(one, rank_count=counts[one.rank]) for one in recording.memory],
        links=recording.links,
    )


def unfold(recording: Recording, counts: dict[int, int]) -> Recording:
    """The recording with every rank and link simulated; rank r's copies are r + 1000, r + 2000, ..."""

    def each(rows: list[Any]) -> list[Any]:
        return [
            dataclasses.replace(row, rank=row.rank + _ON_RANKS * at)
            for row in rows
            for at in range(counts[row.rank])
        ]  # fmt: skip

    return Recording(
        info=dataclasses.replace(recording.info, world_size=sum(counts.values())),
        spans=[dataclasses.replace(one, host=one.rank) for one in each(recording.spans)],
        metrics=each(recording.metrics),
        memory=[dataclasses.replace(one, rank_count=1) for one in each(recording.memory)],
        links=[dataclasses.replace(one, link_count=1) for one in recording.links for _ in range(one.link_count)],
    )  # fmt: skip


def assert_same(left: pd.DataFrame, right: pd.DataFrame, *, but: tuple[str, ...] = ()) -> None:
    pd.testing.assert_frame_equal(left.drop(columns=list(but)), right.drop(columns=list(but)), rtol=1e-9)


@PATIENT
@given(recordings(), st.lists(st.integers(1, 4), min_size=3, max_size=3), st.data())
def test_representatives_give_the_figures_of_all_that_they_represent(recording, many, data):
    counts = dict(enumerate(many))
    values = data.draw(st.lists(st.sampled_from([0.5, 2.0, float("nan")]), min_size=3, max_size=3))
    metrics = [Metric(rank=rank, step=0, name="loss", value=values[rank]) for rank in counts]
    # Not those of ranks without steps, of which nobody says how many they are.
    metrics = [one for one in metrics if any(span.rank == one.rank and span.kind == "step" for span in recording.spans)]
    memory = [MemoryRow(rank=rank, part="a", size_bytes=rank, capacity_bytes=9) for rank in counts]
    whole = dataclasses.replace(recording, metrics=metrics, memory=memory)
    one, all_of_them = Run.of(folded(whole, counts)), Run.of(unfold(whole, counts))
    assert_same(one.operations, all_of_them.operations)
    assert_same(one.steps, all_of_them.steps)
    assert_same(one.metrics_by_step, all_of_them.metrics_by_step)
    for run in (one, all_of_them):
        assert run.ranks["rank_count"].sum() == sum(run.rank_counts)
        assert run.rank_memory["rank_count"].sum() == sum(many)
    own = all_of_them.ranks[all_of_them.ranks["rank"] < _ON_RANKS].reset_index(drop=True)
    assert_same(one.ranks, own, but=("rank_count",))


@PATIENT
@given(st.lists(st.tuples(st.sampled_from(["nic", "nvlink"]), st.integers(0, 90), st.integers(1, 5)), min_size=1))
def test_classes_of_links_count_each_link_that_is_there(links):
    rows = [
        dataclasses.replace(link(f"link{at:03}.out", kind, "out", carried, 60), link_count=count)
        for at, (kind, carried, count) in enumerate(links)
    ]
    recording = dataclasses.replace(by_hand(), links=rows)
    one, all_of_them = Run.of(folded(recording, {0: 1, 1: 1})), Run.of(unfold(recording, {0: 1, 1: 1}))
    assert_same(one.link_classes, all_of_them.link_classes)
    assert one.link_classes["links"].sum() == sum(count for *_, count in links)


def test_a_formula_s_medians_count_the_calls_of_each_represented_rank():
    """Three all-reduces within hosts: two of 10 ns represent one call each, one of 50 ns represents 7."""
    base = next(one for one in by_hand().spans if one.kind == "all_reduce" and one.step == 0)
    calls = [
        dataclasses.replace(
            base, rank=rank, group=f"intra:{rank}", start_ns=0, end_ns=took, formula_ns=20, rank_count=count
        )
        for rank, took, count in ((0, 10, 1), (1, 10, 1), (2, 50, 7))
    ]
    (row,) = Run.of(with_spans(by_hand(), *calls)).formulas.to_dict("records")
    assert (row["calls"], row["median_ns"]) == (3, 50.0)


def test_times_of_computations_count_each_represented_rank():
    counts = {0: 1, 1: 4}
    work = [dataclasses.replace(one, flops=1.0) for one in by_hand().spans]
    found = [
        times.measure([("r", Run.of(make(with_spans(by_hand(), *work), counts)))], any_runs=True).rows
        for make in (folded, unfold)
    ]
    assert_same(*found)
    assert found[0].set_index("label").loc["forward", "samples"] == 10


def test_a_replicated_table_is_on_every_rank_whoever_is_listed():
    def shards(ranks: range, table: str, kind: str, ids: float) -> list[PlanRow]:
        like = by_hand().plan[0]
        return [
            dataclasses.replace(like, rank=rank, table=table, sharding_type=kind, ids_per_step=ids) for rank in ranks
        ]

    def plan(replicas: range) -> Run:
        rows = [*shards(range(3, 4), "a", "table_wise", 90.0), *shards(replicas, "b", "data_parallel", 10.0)]
        return Run.of(Recording(info=info(world_size=16), plan=rows))

    listed, whole = plan(range(2)), plan(range(16))
    assert_same(listed.imbalance, whole.imbalance)
    assert_same(listed.imbalance_causes, whole.imbalance_causes)
    assert listed.imbalance.loc[0, ["worst_rank", "worst", "mean"]].tolist() == [3, 100.0, (90 + 16 * 10) / 16]


def test_the_summary_says_how_the_run_was_simulated_and_whom_the_worst_represents():
    recording = folded(by_hand(), {0: 15, 1: 3})
    recording.links = [dataclasses.replace(recording.links[1], link_count=15), recording.links[0]]
    lines = [" ".join(line.split()) for line in text.as_text(tables.summarize(Run.of(recording))).splitlines()]
    assert lines[:3] == [
        "by_hand: predicted, 18 ranks on 18 hosts, library gloo, payload values, fidelity",
        "flows",
        "18 ranks, simulated as 2 representative hosts",
    ]
    assert "compute 69 ns 69.2 % 70 ns 0 & 14 more 1.01" in lines
    assert "nic 16 2.27 KiB 48.4 % 50.0 % 100.0 %" in lines
    assert "nic1 & 14 more out nic 150 B 50.0 % 50.0 % 100.0 %" in lines
    assert "Memory of the fullest rank, 1 & 2 more, capacity 16.0 KiB" in lines
    content = json.loads(json.dumps(tables.as_json(Run.of(recording)), allow_nan=False))
    assert content["host_counts"] == [[0, 15], [1, 3]]


def test_the_summary_counts_a_single_representative_host():
    one_class = dataclasses.replace(by_hand(), spans=[one for one in by_hand().spans if one.rank == 0], memory=[])
    one_class = folded(one_class, {0: 16})
    assert "\n16 ranks, simulated as 1 representative host\n" in text.as_text(tables.summarize(Run.of(one_class)))


def test_ranks_that_were_kept_count_with_those_that_they_represent():
    kept = Thinned(ranks=(1, 9), steps=None, left_out=3, phases=(1,))
    summary = text.as_text(tables.summarize(Run.of(folded(by_hand(), COUNTS, thinned=kept))))
    assert "\nspans kept of 15 of 16 ranks; 3 others left out\n" in summary


def test_a_comparison_says_how_a_side_was_simulated():
    real = Run.of(by_hand(world="real"))
    printed = repr(compare(Run.of(folded(by_hand(), COUNTS)), real))
    assert "16 ranks, simulated as 2 representative hosts" in " ".join(printed.split())


def test_tracks_in_perfetto_have_the_others_in_their_names():
    events = [one for one in trace(folded(by_hand(), COUNTS))["traceEvents"] if one["ph"] == "M"]
    names = {one["args"].get("name") for one in events}
    assert {"host 0 host-a", "host 1 host-b & 14 more", "rank 0 main", "rank 1 & 14 more main"} <= names


def test_counts_are_written_and_loaded(tmp_path):
    recording = folded(by_hand(), COUNTS)
    recording.links = [dataclasses.replace(one, link_count=3) for one in recording.links]
    run = store.load(store.write(recording, tmp_path / "run"))
    assert run.info == recording.info
    assert run.memory["rank_count"].tolist() == [1, 15, 15]
    assert run.links["link_count"].tolist() == [3, 3, 3]


def test_a_folder_of_a_release_that_did_not_know_counts(tmp_path):
    folder = store.write(by_hand(), tmp_path / "run")
    for name, column in (("memory", "rank_count"), ("links", "link_count")):
        path = folder / f"{name}.parquet"
        pq.write_table(pq.read_table(path).drop_columns([column]), path)
    content = json.loads((folder / "run.json").read_text())
    del content["host_counts"]
    (folder / "run.json").write_text(json.dumps(content))
    run, whole = store.load(folder), Run.of(by_hand())
    assert run.info == whole.info
    pd.testing.assert_frame_equal(run.links, whole.links)
    pd.testing.assert_frame_equal(run.memory, whole.memory)


@pytest.mark.parametrize("found", [[1], [[0, 0]], [[-1, 2]], [[0, 1, 2]], [[0, "2"]]])
def test_foreign_counts_are_said(found, tmp_path):
    path = store.write(by_hand(), tmp_path / "run") / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "host_counts": found}))
    said = refusal(store.load, path.parent)
    assert said == f"{path}: host_counts = {found!r}: expected pairs of a host and how many are like it"


def test_spans_without_their_count_are_damaged(tmp_path):
    """Every release wrote it."""
    path = store.write(by_hand(), tmp_path / "run") / "spans.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["rank_count"]), path)
    assert refusal(store.load, path.parent) == f"{path}: column rank_count is missing or not int64"


def test_formulas_of_a_folded_run_are_there():
    assert len(Run.of(folded(on_nccl(by_hand(), formula_ns=28), COUNTS)).formulas) == 2
