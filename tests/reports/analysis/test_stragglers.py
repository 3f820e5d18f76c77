"""Slow GPUs, ranks with more work, slow and busy links; and runs that have none of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given

from reports.run import Run
from reports.sections.run.causes import timed_faults
from reports.store import run_folder as store
from reports.terminal import text
from reports.terminal.rows import straggler_sentence as sentence
from scenarios.config.faults import Fault, GpuPart, LeafPart, NicPart
from scenarios.config.hardware import Network
from scenarios.seam.kernel import Kernel
from scenarios.seam.rank import Rank
from scenarios.seam.trace import LinkRow, Recording, Span
from sim.run import simulate
from tests import small
from tests.reports import shown as tables
from tests.reports.recordings import PATIENT, SCENARIO, info, recordings, span

RANKS, STEPS, MS = 4, 3, 1_000_000


def compute(rank: int, took_ms: list[float], **changes: Any) -> list[Span]:
    """A rank's steps of 20 ms: "forward" takes the given time, "loss" the same on all ranks."""
    spans = []
    for step, took in enumerate(took_ms):
        start = 20 * MS * step
        at = {"step": step, "host": rank // 2, "sequence": 3 * step}
        middle = start + round(took * MS)
        own = {name: one for name, one in changes.items() if name in ("rank_count", "host")}
        work = {"kernel": "gemm", "flops": 100.0, "bytes_read": 20.0, **changes}
        spans += [
            span(rank, "step", start, start + 20 * MS, **{**at, **own}),
            span(rank, "compute", start, middle, **{**at, "label": "forward", **work}),
            span(rank, "compute", middle, middle + MS, **{**at, "label": "loss", **own}),
        ]
    return spans


def record(*spans: list[Span], links: tuple[LinkRow, ...] = (), **changes: Any) -> Run:
    """A run of ranks 0 to 3: identical ones (4 ms and 1 ms per step), but for those given."""
    given_ranks = {one[0].rank for one in spans}
    identical = [compute(rank, [4] * STEPS) for rank in range(RANKS) if rank not in given_ranks]
    about = info(**{"world_size": RANKS, **changes})
    return Run.of(
        Recording(info=about, spans=[one for each in (*identical, *spans) for one in each], links=list(links))
    )


def sentences(run: Run) -> list[str]:
    return [sentence({str(key): value for key, value in row.items()}) for row in run.stragglers.to_dict("records")]


def nic(name: str, carried: float, gb_per_s: float = 50.0, **changes: Any) -> LinkRow:
    """A NIC; `carried`: MB per step."""
    known: dict[str, Any] = {"link_class": "nic", "direction": name.rpartition(".")[2], "host": 0, "busy_ns": 0}
    row = {**known, "link": name, "bytes_carried": carried * 1e6 * STEPS, "bytes_per_s": gb_per_s * 1e9, **changes}
    return LinkRow(**row)


def test_a_gpu_whose_computations_take_longer_than_the_same_ones_elsewhere():
    run = record(compute(3, [8] * STEPS))
    assert sentences(run) == [
        "GPU 1 of host 1 (rank 3): its computations take 1.8 times as long as equal ones on other ranks; "
        "4.00 ms of a 20.0 ms step"
    ]
    (row,) = run.stragglers.dropna(axis="columns").to_dict("records")
    assert row == {
        **{"kind": "gpu", "name": "host1.gpu1", "cause": "straggler", "label": "", "host": 1, "gpu": 1, "rank": 3},
        **{"count": 1, "ratio": 9 / 5, "time_ns": 9e6, "median_ns": 5e6, "cost_ns": 4e6, "step_ns": 20e6},
        "per_host": False,
    }


@pytest.mark.parametrize(
    "took", [[4.5] * STEPS, [8, 4, 4], [3] * STEPS], ids=["less than a tenth", "in one step only", "faster"]
)
def test_a_gpu_that_is_not_slow_is_not_named(took):
    assert sentences(record(compute(3, took))) == []


def test_a_gpu_that_waits_for_a_late_host_is_not_slow():
    """A rank that saves a checkpoint launches late: its kernels end late, and run as fast as elsewhere."""
    late = compute(3, [8] * STEPS, launch_ns=4 * MS)
    assert sentences(record(late)) == []
    (early, slow) = (compute(rank, [8] * STEPS, launch_ns=ms * MS) for rank, ms in ((2, 4), (3, 0)))
    assert record(early, slow).stragglers["rank"].tolist() == [3]


def test_where_all_scatter_nobody_is_named_who_does_not_more_than_the_others():
    took = [4, 5.5, 4.5, 6, 5]
    scattered = [compute(rank, [one] * STEPS) for rank, one in enumerate(took)]
    assert sentences(record(*scattered, world_size=5)) == []
    slow = record(*scattered, compute(5, [12] * STEPS), world_size=6)
    assert slow.stragglers["rank"].tolist() == [5]


def test_of_two_gpus_the_slower_one_is_named():
    first, second = compute(0, [4] * STEPS), compute(1, [8] * STEPS)
    run = Run.of(Recording(info=info(), spans=[*first, *second]))
    assert run.stragglers["name"].tolist() == ["host0.gpu1"]


def test_the_median_counts_each_represented_rank():
    """Two of 18 ranks are fast."""
    fast = [compute(rank, [2] * STEPS) for rank in (0, 1)]
    usual = compute(2, [4] * STEPS, rank_count=16)
    slow = compute(3, [8] * STEPS, rank_count=3)
    run = record(*fast, usual, slow, world_size=21)
    assert run.stragglers[["name", "count"]].to_numpy().tolist() == [["host1.gpu1", 3]]


def test_work_that_is_not_equal_is_no_slowness():
    more = compute(3, [8] * STEPS, flops=200.0, bytes_read=50.0)
    assert sentences(record(more)) == [
        "GPU 1 of host 1 (rank 3): forward touches 2.5 times as many bytes as on the median rank; "
        "it computes 4.00 ms longer than the median rank, of a 20.0 ms step"
    ]
    assert record(more).stragglers["cause"].tolist() == ["hot spot"]
    assert sentences(record(compute(3, [4.4] * STEPS, bytes_read=22.0))) == []


def test_work_that_the_median_rank_has_not():
    only = compute(3, [8] * STEPS, label="lookup", bytes_read=float(1 << 20))
    others = [compute(rank, [4] * STEPS) for rank in range(3)]
    assert sentences(record(*others, only)) == [
        "GPU 1 of host 1 (rank 3): lookup touches 1.00 MiB per step, none on the median rank; "
        "it computes 4.00 ms longer than the median rank, of a 20.0 ms step"
    ]


def test_a_slow_gpu_comes_before_a_rank_with_more_to_do_that_costs_more():
    run = record(compute(2, [6] * STEPS), compute(3, [15] * STEPS, bytes_read=90.0))
    assert run.stragglers["cause"].tolist() == ["straggler", "hot spot"]
    assert run.stragglers["rank"].tolist() == [2, 3]


def update(rank: int, took_ms: float, mega_bytes: float, slower: float = 1) -> list[Span]:
    """The spans of `compute` and an update after them, all of them `slower` times as long."""
    at = 20 * MS * np.arange(STEPS) + 15 * MS
    update = {"host": rank // 2, "label": "update", "kernel": "update", "bytes_read": mega_bytes * 1e6}
    spans = [
        *compute(rank, [4] * STEPS),
        *(
            span(rank, "compute", start, start + round(took_ms * MS), step=n, **update)
            for n, start in enumerate(at.tolist())
        ),
    ]
    return [
        one
        if one.kind == "step"
        else dataclasses.replace(one, end_ns=round(one.start_ns + (one.end_ns - one.start_ns) * slower))
        for one in spans
    ]


def test_work_of_a_slow_gpu_alone_is_compared_at_the_others_speed():
    others = [update(rank, 1, 10 + rank) for rank in range(RANKS - 1)]
    run = record(*others, update(3, 2.5, 30, slower=2))
    assert sentences(run) == [
        "GPU 1 of host 1 (rank 3): its computations take 2.0 times as long as equal ones on other ranks; "
        "5.00 ms of a 20.0 ms step",
        "GPU 1 of host 1 (rank 3): update touches 2.7 times as many bytes as on the median rank; "
        "it computes 1.50 ms longer than the median rank, of a 20.0 ms step",
    ]


def test_a_slow_gpu_has_no_more_to_do_for_being_slow():
    others = [update(rank, 2, 10 + rank) for rank in range(RANKS - 1)]
    assert record(*others, update(3, 2, 30, slower=2)).stragglers["cause"].tolist() == ["straggler"]


def test_two_slow_gpus_do_not_shift_the_median():
    others = [update(rank, 1, 10 + rank) for rank in range(RANKS)]
    run = record(*others, *(update(rank, 2, 30, slower=4) for rank in (4, 5)), world_size=6)
    assert run.stragglers["cause"].tolist() == ["straggler", "straggler", "hot spot"]
    assert run.stragglers["cost_ns"].tolist() == [15e6, 15e6, 1e6]


def test_the_cost_of_a_straggler_is_at_most_the_step():
    """Computations at the same time on two streams; a link that carried much in a step that was longer."""

    def twice(rank: int, took_ms: float) -> list[Span]:
        spans = compute(rank, [took_ms] * STEPS)
        return [*spans, *(dataclasses.replace(one, stream="side") for one in spans if one.label == "forward")]

    run = record(*(twice(rank, 4) for rank in range(3)), twice(3, 18))
    assert run.stragglers["cost_ns"].tolist() == [20e6]
    assert sentences(run)[0].endswith("; 20.0 ms of a 20.0 ms step")
    busy = record(links=tuple(nic(f"host{host}.nic0.out", 100 if host else 3000) for host in range(4)))
    assert busy.stragglers["cost_ns"].tolist() == [20e6]
    assert "needs 20.0 ms of a 20.0 ms step" in sentences(busy)[0]


def test_a_nic_of_a_lower_rate_is_named_once():
    links = [
        nic(f"host{host}.nic0.{way}", 100, 12.5 if host == 2 else 50) for host in range(4) for way in ("in", "out")
    ]
    assert sentences(record(links=tuple(links))) == [
        "host2.nic0.in: 12.5 GB/s where the median NIC has 50.0 GB/s; "
        "needs 8.00 ms of a 20.0 ms step, the median NIC 2.00 ms"
    ]


def test_a_slow_nic_is_slow_also_where_it_carries_most():
    links = [nic(f"host{host}.nic0.out", 100 if host else 600, 50 if host else 25) for host in range(4)]
    assert record(links=tuple(links)).stragglers[["name", "cause"]].to_numpy().tolist() == [
        ["host0.nic0.out", "straggler"]
    ]


def test_of_nics_that_carry_more_the_worst_is_named():
    links = [nic(f"host{host}.nic0.out", carried) for host, carried in enumerate([100, 100, 100, 300, 200])]
    run = record(links=tuple(links))
    assert sentences(run) == [
        "host3.nic0.out: carries 286 MiB per step, the median NIC 95.4 MiB; "
        "needs 6.00 ms of a 20.0 ms step, the median NIC 2.00 ms"
    ]
    assert run.stragglers[["kind", "cause", "rank", "cost_ns"]].to_numpy().tolist() == [["nic", "hot spot", -1, 4e6]]


def test_an_oversubscribed_leaf():
    nics = [nic(f"host{host}.nic0.out", 100) for host in range(4)]
    uplinks = [
        nic(f"leaf{leaf}.uplinks.out", 200, 20 if leaf else 100, link_class="uplink", host=2 * leaf) for leaf in (0, 1)
    ]
    assert sentences(record(links=(*nics, *uplinks))) == [
        "leaf1.uplinks.out: 20.0 GB/s where the median leaf has 100 GB/s; "
        "needs 10.0 ms of a 20.0 ms step, the median leaf 2.00 ms"
    ]


def leaves(*gb_per_s: float, carried: tuple[float, ...] = (100, 100, 50), per_leaf: int | None = 4) -> Run:
    """A run on leaves of 4, 4 and 2 hosts."""
    network = {"kind": "leaf_spine", "hosts_per_leaf": per_leaf}
    uplinks = [
        nic(f"leaf{leaf}.uplinks.out", each, rate, link_class="uplink", host=4 * leaf)
        for leaf, (rate, each) in enumerate(zip(gb_per_s, carried, strict=True))
    ]
    scenario = {**SCENARIO, "cluster": {"hosts": 10, "network": network}}
    return record(links=tuple(uplinks), scenario=scenario)


def test_uplinks_of_a_smaller_leaf_are_not_slow_for_being_fewer():
    assert sentences(leaves(20, 20, 10)) == []
    assert leaves(20, 20, 10, carried=(100, 100, 100), per_leaf=None).stragglers["cause"].tolist() == ["straggler"]
    assert sentences(leaves(20, 20, 10, carried=(100, 100, 100))) == [
        "leaf2.uplinks.out: carries 47.7 MiB per step and host, the median leaf 23.8 MiB; "
        "needs 10.0 ms of a 20.0 ms step, the median leaf 5.00 ms"
    ]
    assert sentences(leaves(20, 20, 5)) == [
        "leaf2.uplinks.out: 2.50 GB/s per host where the median leaf has 5.00 GB/s; "
        "needs 10.0 ms of a 20.0 ms step, the median leaf 5.00 ms"
    ]


def test_links_of_other_classes_and_idle_ones_are_not_compared():
    """A host's bridge carries what all of its GPUs send; a NIC without traffic says nothing of the others."""
    gpus = [nic(f"gpu{gpu}.out", 50, link_class="pcie") for gpu in range(4)]
    bridges = [nic(f"host{host}.bridge.out", 200, link_class="pcie") for host in range(2)]
    nics = [nic(f"host{host}.nic0.out", 0 if host < 3 else 300) for host in range(4)]
    assert sentences(record(links=(*gpus, *bridges, *nics))) == []


def test_a_link_that_needs_less_than_others_usually_do_holds_nobody_up():
    nics = [nic(f"host{host}.nic0.out", 100 if host else 300) for host in range(4)]
    uplinks = [nic(f"leaf{leaf}.uplinks.out", 400, link_class="uplink") for leaf in range(2)]
    assert sentences(record(links=(*nics, *uplinks))) == []


def test_the_median_of_links_counts_each_represented_link():
    links = (nic("host0.nic0.out", 100, link_count=2), nic("host5.nic0.out", 300, link_count=9))
    assert sentences(record(links=links)) == []
    run = record(links=(links[0], dataclasses.replace(links[1], link_count=1)))
    assert run.stragglers["name"].tolist() == ["host5.nic0.out"]


def test_nvlinks_of_a_mesh_are_single_or_double_by_design():
    links = [nic(f"gpu0.nvlink{gpu}.out", 100, 25 if gpu < 2 else 50, link_class="nvlink") for gpu in range(1, 6)]
    assert sentences(record(links=tuple(links))) == []


def test_negligible_stragglers_are_not_named():
    assert sentences(record(compute(3, [4.19] * STEPS, kernel="x", bytes_read=90.0))) == []

    def nics(carried: float, gb_per_s: float) -> Run:
        odd = nic("host9.nic0.out", carried, gb_per_s)
        return record(links=(odd, *(nic(f"host{host}.nic0.out", 1) for host in range(3))))

    assert sentences(nics(10, 50)) == [], "0.18 of 20 ms"
    assert len(sentences(nics(12, 50))) == 1
    assert sentences(nics(1, 26)) == [], "18 of 20,000 us"
    assert len(sentences(nics(1, 24))) == 1, "a slow one is worth a look sooner"


def test_the_summary_shows_the_worst_five_and_json_all():
    slow = [compute(rank, [took] * STEPS) for rank, took in ((3, 12), (4, 10), (5, 11), (6, 9), (1, 8), (2, 7))]
    identical = [compute(rank, [4] * STEPS) for rank in range(7, 20)]
    run = record(*slow, *identical, world_size=20)
    summary = text.as_text(tables.summarize(run))
    shown = summary[summary.index("Stragglers") :].split("\n\n")[0]
    assert shown.splitlines()[0] == "Stragglers and hot spots, and what they cost a step at most; 1 more not shown"
    assert [line.split(":")[0] for line in shown.splitlines() if ". GPU" in line] == [
        "1. GPU 1 of host 1 (rank 3)",
        "2. GPU 1 of host 2 (rank 5)",
        "3. GPU 0 of host 2 (rank 4)",
        "4. GPU 0 of host 3 (rank 6)",
        "5. GPU 1 of host 0 (rank 1)",
    ]
    assert "(rank 2)" not in shown
    assert [row["rank"] for row in tables.as_json(run)["stragglers"]] == [3, 5, 4, 6, 1, 2]
    assert "Stragglers" not in text.as_text(tables.summarize(record()))


def test_links_are_looked_at_where_no_span_was_kept():
    run = record(links=tuple(nic(f"host{host}.nic0.out", 100, 10 if host else 50) for host in (1, 0, 0)))
    run.__dict__["kept_steps"] = run.steps.iloc[:0]
    assert run.stragglers["name"].tolist() == ["host1.nic0.out"]


@pytest.mark.slow
@PATIENT
@given(recordings())
def test_parts_say_what_the_whole_says(tmp_path_factory, recording):
    whole = Run.of(recording).stragglers
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "PART_ROWS", 1)
        parted = store.load(store.write(recording, tmp_path_factory.mktemp("parts") / "run"))
        pd.testing.assert_frame_equal(parted.stragglers, whole)


async def exchanging(rank: Rank) -> None:
    """Two steps of 10 GFLOP, 1 ms, and 1 MiB to each other rank, 0.8 ms on a NIC."""
    elements = rank.world_size << 18
    for index in range(2):
        with rank.step(index):
            await rank.compute(Kernel(kind="gemm", flops=1e10), int, label="forward")
            given, taken = (torch.zeros(elements, device=rank.device) for _ in range(2))
            await rank.all_to_all_single(taken, given, label="exchange")


@pytest.mark.parametrize(
    ("slow", "name", "cause"),
    [
        ((), None, None),
        ((Fault(GpuPart(2, 1), 0.5),), "host2.gpu1", "straggler"),
        ((Fault(NicPart(1, 0), 0.25),), "host1.nic0.in", "straggler"),
        ((Fault(LeafPart(1), 0.25),), "leaf1.uplinks.in", "straggler"),
    ],
)
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_of_a_prediction_the_part_that_was_made_slow_is_named(slow, name, cause, fidelity):
    network = Network(kind="leaf_spine", hosts_per_leaf=2)
    on = small.cluster(hosts=8, faults=slow, network=network)
    found = small.scenario(on, library="nccl", payload="sizes", fidelity=fidelity, steps=2)
    run = Run.of(simulate(found, small.Play(exchanging)))
    assert run.stragglers[["name", "cause"]].to_numpy().tolist() == ([[name, cause]] if name else [])


def test_parts_that_are_slow_for_a_time_are_named_with_the_steps_in_it() -> None:
    faults = (
        Fault(NicPart(1, 0), 0.25, 0, 5_000_000),
        Fault(GpuPart(0, 1), 0.5, 3_000_000),
        Fault(LeafPart(1), 0.5, 8_000_000_000, 9_000_000_000),
        Fault(GpuPart(1, 1), 0.9),
    )
    on = small.cluster(hosts=4, faults=faults, network=Network(kind="leaf_spine", hosts_per_leaf=2))
    run = Run.of(simulate(small.scenario(on, library="nccl", payload="sizes", steps=2), small.Play(exchanging)))
    said = [
        "NIC 0 of host 1: 25.0 % of nominal rates until 5.00 ms, in step 0",
        "GPU 1 of host 0: 50.0 % of nominal rates from 3.00 ms on, in steps 0-1",
        "uplinks of leaf 1: 50.0 % of nominal rates from 8.00 s until 9.00 s, when no step runs",
    ]
    assert timed_faults(run) == said
    assert f"slow parts  {said[0]}" in str(run)
    report = " ".join(text.as_text(tables.summarize(run)).split())
    assert "Parts that the scenario slows for a time" in report
    assert all(f"{sentence}." in report for sentence in said)
    assert (
        timed_faults(Run.of(simulate(small.scenario(small.cluster(faults=faults[3:])), small.Play(exchanging)))) == []
    )
