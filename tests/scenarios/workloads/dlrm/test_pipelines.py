"""Training loops: what each pipeline computes, in which order and how long it takes, and alike in both worlds."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from torch import Tensor

from scenarios.config.hardware import Inside
from scenarios.config.scenario import Data, Feature, Pipeline, Scenario, ShardingType
from scenarios.config.scenario.step import STAGES
from scenarios.seam.trace import COPYING, LOADING, Recording, Span
from scenarios.workloads.dlrm.loader import Drawer
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.contract.worlds import WORLDS
from tests.scenarios.workloads.dlrm.test_accumulation import Accumulated
from tests.sim.test_dlrm_bags import EVERY, calls, mix
from tests.sim.test_dlrm_host_memory import BIG, LINK, longest, make_hosted, of_label, play_ready, step_ns, time
from tests.sim.test_dlrm_steps import ALL, MORE, TOLERANCE, Reference, losses, training
from tests.small import CORE, change, cluster, model_of, with_model

KINDS = tuple(STAGES)
SEMI_SYNC = Pipeline(kind="semi_sync")
COPIES = Data(copies=True)


class Stale(Accumulated):
    """Each micro-batch is given rows as they were before the update before it."""

    def __init__(self, training: Scenario) -> None:
        super().__init__(training)
        self.seen = self.copy()
        self.now: list[Tensor] = []

    def copy(self) -> list[Tensor]:
        return [weight.detach().clone() for weight in self.weights]

    def put(self, values: list[Tensor]) -> None:
        for weight, value in zip(self.weights, values, strict=True):
            weight.data = value

    def micro_batch(self, number: int, share: float) -> float:
        self.now = self.copy()
        self.put(self.seen)
        return super().micro_batch(number, share)

    def update(self, chosen: list[int]) -> None:
        if self.now:
            self.seen = [each.clone() for each in self.now]
            self.put(self.now)
            self.now = []
        super().update(chosen)


def on_nvlink(made: Scenario, **changes: Any) -> Scenario:
    inside = Inside(kind="nvlink", link=LINK, host_bytes_per_s=1e10)
    return change(made, cluster=cluster(2, 2, gpu=BIG, inside=inside), **changes)


def of_step(recording: Recording, step: int = 1, rank: int = 0) -> list[Span]:
    found = [one for one in recording.spans if (one.rank, one.step) == (rank, step) and one.kind != "step"]
    return sorted(found, key=lambda one: (one.issued_ns, one.sequence))


# Semi-synchronous training


@pytest.mark.parametrize(
    ("types", "optimizer", "order"),
    [
        (("data_parallel",), "sgd", "eager"),
        (ALL, "adagrad", "eager"),
        (ALL, "sgd", "overlapped"),
        (MORE, "sgd", "eager"),
    ],
    ids=str,
)
def test_semi_sync_trains_on_rows_that_miss_one_update(
    types: tuple[ShardingType, ...], optimizer: str, order: Any
) -> None:
    made = training(types, optimizer=optimizer, pipeline=dataclasses.replace(SEMI_SYNC, order=order), steps=4)
    found = losses(simulate(made, DlrmProgram(made)))
    assert found == pytest.approx(Stale(made).losses(), rel=TOLERANCE)
    assert found != pytest.approx(Reference(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_semi_sync_of_every_bag_in_micro_batches(accumulation: int) -> None:
    made = mix(EVERY, ALL, pipeline=dataclasses.replace(SEMI_SYNC, accumulation=accumulation))
    assert losses(simulate(made, DlrmProgram(made))) == pytest.approx(Stale(made).losses(), rel=TOLERANCE)


def test_semi_sync_issues_as_torchrec_does() -> None:
    """Look-ups of the next batch behind the dense forward pass, gradients and updates behind the dense backward one."""
    made = training(("row_wise", "table_wise"), pipeline=SEMI_SYNC, library="nccl", payload="sizes")
    labels = [one.label for one in of_step(simulate(made, DlrmProgram(made))) if one.stream == "main"]
    found = {}
    for part in ("dense.forward", "wise.lookup", "dense.backward", "wise.gradients", "wise.update", "dense.update"):
        at = [number for number, label in enumerate(labels) if part in label]
        found[part] = min(at), max(at)
    in_turn = [place for bounds in found.values() for place in bounds]
    assert in_turn == sorted(in_turn)


def test_semi_sync_hides_the_exchange_of_rows() -> None:
    """As long as the exchange of ids is hidden, it is quicker than a pipeline that waits for rows in each step."""
    took = {}
    for kind in ("none", "sparse_dist", "semi_sync"):
        made = training(ALL, batch_size=1024, payload="sizes", library="nccl", pipeline=Pipeline(kind=kind))
        took[kind] = [one.end_ns - one.start_ns for one in steps_of(play_ready(made))]
    assert max(took["semi_sync"]) < min(took["sparse_dist"]) < min(took["none"])
    assert max(took["semi_sync"]) < 1.05 * min(took["semi_sync"])  # also the first


# Copies


@pytest.mark.parametrize(("kind", "ahead"), [("base", 1), ("sparse_dist", 2), ("prefetch_sparse_dist", 3)])
def test_copies_go_on_beside_each_step(kind: Any, ahead: int) -> None:
    recording = play_ready(on_nvlink(training(ALL), data=COPIES, pipeline=Pipeline(kind=kind)))
    copies = [one for one in recording.spans if one.rank == 0 and one.kernel == COPYING]
    assert {(one.label, one.stream) for one in copies} == {("data.copy", "memcpy")}
    assert [one.step for one in copies] == [-1] * ahead + [0, 1, 2]


def test_without_a_pipeline_the_copy_comes_first_in_the_step() -> None:
    first = of_step(play_ready(on_nvlink(training(ALL), data=COPIES)))[0]
    assert (first.label, first.stream, first.kernel) == ("data.copy", "main", COPYING)


def test_a_copy_is_what_the_batch_is() -> None:
    """Ids and lengths of 8 bytes, weights of 4, dense features and a label of 4 a sample."""
    made = on_nvlink(mix(("weighted",), ALL, payload="sizes"), data=COPIES)
    model = model_of(made)
    assert model is not None
    moved = of_label(recording := play_ready(made), "data.copy")
    looked = [one for one in recording.spans if one.step == 1 and one.label.endswith(".values")]
    assert looked
    for one in moved:
        without_ids = 6 * (8 * len(model.tables) + 4 * (model.dense_features + 1))
        ids, rest = divmod(one.bytes_written - without_ids, 8 + 4)
        assert rest == 0
        assert 6 * 6 <= ids <= 6 * 6 + 6 * 6  # 2 + 1 + 3 of fixed tables, and Poisson's 1.5


def test_a_step_is_as_long_as_its_copy_where_that_is_slowest_and_no_longer_where_it_is_hidden() -> None:
    """On one host, where only copies cross the path."""

    def one(kind: Any, data: Data, rate: float) -> Recording:
        made = time(("fused",), pipeline=Pipeline(kind=kind), host_rate=rate, data=data)
        host = dataclasses.replace(made.cluster.host, gpus=4)
        return play_ready(dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, hosts=1, host=host)))

    quick, slow = 1e10, 1e8
    for kind in ("base", "sparse_dist", "semi_sync"):
        alone = longest(one(kind, Data(), quick), "step")
        copied = one(kind, COPIES, slow)
        copies = max(each.end_ns - each.start_ns for each in of_label(copied, "data.copy"))
        assert copies > 1.5 * alone
        if kind != "base":  # whose copy begins with the backward pass
            assert longest(copied, "step") == pytest.approx(copies, rel=0.1)
        # Behind a copy the host comes to wait for sizes at another moment, which may save a little.
        assert longest(one(kind, COPIES, quick), "step") == pytest.approx(alone, rel=0.02)
    eager = longest(one("none", Data(), slow), "step")
    copied = one("none", COPIES, slow)
    copies = max(each.end_ns - each.start_ns for each in of_label(copied, "data.copy"))
    assert longest(copied, "step") == pytest.approx(eager + copies, rel=0.02)


def test_copies_share_the_path_with_what_goes_to_nics() -> None:
    """Beside an exchange between hosts a copy takes longer than on one host, and the links carry both."""
    made = time(("fused",), pipeline=Pipeline(kind="sparse_dist"), host_rate=5e8)
    with_copies = change(made, data=COPIES)
    recording = play_ready(with_copies)
    copies = of_label(recording, "data.copy")
    alone_ns = min(one.bytes_written / 5e8 * 1e9 for one in copies)
    assert max(one.end_ns - one.start_ns for one in copies) > 1.1 * alone_ns
    every = [one for one in recording.spans if one.kernel == COPYING]
    came, nics = (
        sum(one.bytes_carried for one in recording.links if (one.link_class, one.direction) == (kind, "in"))
        for kind in ("host", "nic")
    )
    assert came == pytest.approx(nics + sum(one.bytes_written for one in every), rel=1e-9)
    wide = time(("fused",), pipeline=Pipeline(kind="sparse_dist"), host_rate=5e9)  # than the NIC: they are not needed
    assert not [one for one in play_ready(wide).links if one.link_class == "host"]


def test_a_batch_enqueued_after_the_forward_pass_leaves_the_path_to_look_ups_in_host_memory() -> None:
    """As TorchRec's comment in `TrainPipelineSparseDist.progress` says of the option; losses stay."""
    before = Pipeline(kind="sparse_dist")
    after = dataclasses.replace(before, enqueue_batch_after_forward=True)

    def run(pipeline: Pipeline, data: Data = COPIES) -> Recording:
        return play_ready(time(("fused_uvm",), pipeline=pipeline, host_rate=1e9, data=data))

    def looked_ns(recording: Recording) -> int:
        return sum(one.end_ns - one.start_ns for one in of_label(recording, "lookup"))

    shared, apart, alone = run(before), run(after), run(before, Data())
    assert looked_ns(apart) == pytest.approx(looked_ns(alone), rel=0.01)
    assert looked_ns(shared) > 1.3 * looked_ns(apart)
    assert longest(apart, "step") < longest(shared, "step")
    copied, looked = of_label(apart, "data.copy"), of_label(apart, "lookup")
    assert len(copied) == 4
    assert all(copy.start_ns >= one.end_ns for copy in copied for one in looked if one.rank == copy.rank)
    assert after.copied_ahead == before.copied_ahead == 2
    assert losses(play_ready(make_hosted(pipeline=after, data=COPIES))) == losses(
        play_ready(make_hosted(pipeline=before))
    )


def test_a_cpu_process_copies_nothing() -> None:
    made = dataclasses.replace(training(ALL), cluster=cluster(2, 2, gpu=CORE))
    assert play_ready(change(made, data=COPIES)).spans == play_ready(made).spans


def test_expected_batches_copy_what_drawn_ones_do() -> None:
    made = time(("fused",), pipeline=SEMI_SYNC, batch_size=512, data=COPIES)
    made = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, hosts=4))
    alike = made.with_run(fidelity="links", ranks="alike")
    assert step_ns(alike) == pytest.approx(step_ns(made), rel=0.05)
    sizes = [
        sum(one.bytes_written for one in each) / len(each)
        for each in (of_label(play_ready(one), "data.copy") for one in (made, alike))
    ]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


def test_a_loader_far_ahead_draws_and_loads_what_the_run_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = [], Drawer.draw
    monkeypatch.setattr(Drawer, "draw", lambda self, number: drawn.append(number) or draw(self, number))
    made = on_nvlink(training(ALL, payload="sizes", pipeline=SEMI_SYNC), data=Data(samples_per_s=1e5, prefetch=10_000))
    far, ahead, steps = play_ready(made), STAGES["semi_sync"].ahead("exchange"), made.run.steps
    assert sorted(drawn) == sorted(made.cluster.world_size * list(range(steps + ahead)))
    assert len(of_label(far, "data.load")) <= made.cluster.world_size * 2 * (steps + ahead + 1)
    enough = play_ready(change(made, data=Data(samples_per_s=1e5, prefetch=steps + ahead + 1)))
    assert far.spans == enough.spans


# Memory


def part_bytes(made: Scenario, part: str) -> int:
    return sum(row.size_bytes for row in DlrmProgram(made).memory if row.rank == 0 and row.part == part)


def test_batches_in_flight_are_in_memory() -> None:
    sizes = {}
    for kind in KINDS:
        made = on_nvlink(training(ALL), pipeline=Pipeline(kind=kind))  # type: ignore[arg-type]
        assert part_bytes(made, "batches") == 0
        sizes[kind] = part_bytes(change(made, data=COPIES), "batches")
    ids, dense = 6 * 8 * (2 + 1 + 1.5 + 3 + 4), 6 * 4 * (5 + 1)
    assert sizes["none"] == ids
    for kind, ahead in (("base", 1), ("sparse_dist", 2), ("prefetch_sparse_dist", 3), ("semi_sync", 3)):
        assert sizes[kind] == ids + ahead * (ids + dense)


def test_semi_sync_holds_the_next_batchs_rows() -> None:
    made = training(ALL)
    ahead = change(made, pipeline=SEMI_SYNC)
    assert part_bytes(made, "embeddings ahead") == 0
    assert part_bytes(ahead, "embeddings ahead") == 6 * 4 * 8 * 4
    two = change(made, pipeline=Pipeline(kind="prefetch_sparse_dist"))
    assert part_bytes(ahead, "sparse buffers") > part_bytes(two, "sparse buffers")


def test_batches_ahead_hold_lengths_ids_and_rows_of_every_feature() -> None:
    """Two more features of the first table: a length for each sample and feature, their ids, and their pooled rows."""
    made = on_nvlink(training(ALL), pipeline=SEMI_SYNC, data=COPIES)
    first, *others = made.workload.tables
    features = [
        Feature(name=name, ids_per_sample=ids) for name, ids in (("a", first.ids_per_sample), ("b", 3), ("c", 5))
    ]
    shared = dataclasses.replace(
        first, features=tuple(features), ids_per_sample=sum(each.ids_per_sample for each in features)
    )
    several = with_model(made, tables=(shared, *others))
    assert part_bytes(several, "batches") == part_bytes(made, "batches") + 4 * 6 * 8 * (1 + 3 + 1 + 5)
    rows = part_bytes(several, "embeddings ahead") - part_bytes(made, "embeddings ahead")
    assert rows == 2 * 6 * 4 * first.dim


# The data loader


def steps_of(recording: Recording) -> list[Span]:
    return [one for one in recording.spans if one.kind == "step" and one.rank == 0]


@pytest.mark.parametrize("kind", ["none", "sparse_dist", "semi_sync"])
def test_a_step_is_as_long_as_loading_its_batch_where_that_is_slowest(kind: Any) -> None:
    made = time(("fused",), pipeline=Pipeline(kind=kind), batch_size=64, data=COPIES)
    alone = longest(play_ready(made), "step")
    for share in (0.5, 3.0):
        lasts_ns = round(share * alone)
        data = Data(copies=True, samples_per_s=64 / lasts_ns * 1e9)
        recording = play_ready(change(made, data=data))
        took = {one.end_ns - one.start_ns for one in recording.spans if one.kind == "step"}
        assert took == {lasts_ns} if share > 1 else max(took) == alone
        loads = [one for one in recording.spans if one.kernel == LOADING and one.rank == 0]
        assert {one.label for one in loads} == {"data.load"}
        assert {one.end_ns - one.start_ns for one in loads} == {lasts_ns}
        assert [one.step for one in loads if one.step >= 0] == [0, 1, 2]


def test_steps_begin_as_far_apart_as_batches_come() -> None:
    """One that is ahead loads on while the ranks meet between steps; else that comes on top."""
    made = training(ALL, payload="sizes").with_run(steps=6)
    for prefetch in (1, 2, 4):
        data = Data(samples_per_s=6 / 0.01, prefetch=prefetch)
        begun = [one.start_ns for one in steps_of(play_ready(change(made, data=data)))]
        apart = {later - one for one, later in zip(begun[prefetch:], begun[prefetch + 1 :], strict=False)}
        assert apart == {10_000_000} if prefetch > 1 else min(apart) > 10_000_000


@pytest.mark.real
def test_a_loader_is_alike_in_both_worlds_and_takes_its_time() -> None:
    lasts_s = 0.05
    data = Data(copies=True, samples_per_s=6 / lasts_s)
    made = on_nvlink(mix(EVERY, ALL, pipeline=Pipeline(kind="prefetch_sparse_dist")), data=data)
    found = [play(DlrmProgram(made), made) for play in WORLDS.values()]
    assert losses(found[0]) == pytest.approx(losses(found[1]), rel=1e-6)
    assert losses(found[0]) == losses(play_ready(change(made, data=Data())))
    assert calls(found[0]) == calls(found[1])
    loads = [one for one in found[1].spans if one.label == "data.load"]
    assert min(one.end_ns - one.start_ns for one in loads) >= lasts_s * 1e9
    assert min(one.end_ns - one.start_ns for one in steps_of(found[1])) >= lasts_s * 1e9
