"""Several features a table: the same model as in plain torch, TorchRec's calls, and expected loads as drawn ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import (
    Bag,
    Feature,
    Ids,
    Pipeline,
    Replication,
    Scenario,
    ShardingType,
    Table,
)
from scenarios.planner.plan import plan_tables
from scenarios.seam.trace import Recording
from scenarios.workloads.dlrm.program import DlrmProgram
from sim.run import simulate
from tests.sim.test_dlrm_bags import BIG, EVERY, SEQUENCES, mix
from tests.sim.test_dlrm_steps import ALL, MORE, TOLERANCE, Reference, losses, training
from tests.sim.test_step_order import SAME, list_issued, second_step, without_reductions
from tests.small import cluster, with_model

RECORDED = json.loads((Path(__file__).parent.parent / "data/torchrec_step.json").read_text())


def share(made: Scenario) -> Scenario:
    """All tables but every third get a second feature, and the first a third one; each with a law of its own."""
    tables = tuple(
        _with_features(table, 1 + (number % 3 != 2) + (number == 0))
        for number, table in enumerate(made.workload.tables)
    )
    return with_model(made, tables=tables)


def _with_features(table: Table, count: int) -> Table:
    if count == 1:
        return table
    own = Feature(
        name=table.name,
        ids_per_sample=table.ids_per_sample,
        ids_per_sample_kind=table.ids_per_sample_kind,
        ids=table.ids,
    )
    more = (
        Feature(name=f"{table.name}_more", ids_per_sample=1.5, ids_per_sample_kind="poisson"),
        Feature(name=f"{table.name}_last", ids_per_sample=2, ids=Ids(kind="zipf", exponent=0.7)),
    )
    features = (own, *more)[:count]
    total = sum(feature.ids_per_sample for feature in features)
    return dataclasses.replace(table, features=features, ids_per_sample=total)


def run(made: Scenario) -> Recording:
    return simulate(made, DlrmProgram(made))


@pytest.mark.parametrize(
    "types", [*(pytest.param((one,), marks=pytest.mark.slow) for one in ALL), ALL, MORE], ids="+".join
)
def test_features_train_the_same_model(types: tuple[ShardingType, ...]) -> None:
    made = share(training(types))
    assert losses(run(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize("kind", ["cat", "dot"])
def test_features_that_share_a_table_match_the_reference(kind: Any) -> None:
    """Also with Adagrad, which sums the gradients of a row over all features that name it before it squares."""
    made = share(training(ALL, kind, "adagrad"))
    assert losses(run(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


def test_columns_that_several_features_read_are_cut_once() -> None:
    made = share(training(MORE, dim=256))
    program = DlrmProgram(made)
    assert max(row.column_offset for row in program.plan) > 0
    assert losses(simulate(made, program)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize(("bags", "types"), [(("sequence",), SEQUENCES), (("weighted",), ALL), (EVERY, ALL)], ids=str)
def test_weighted_bags_and_sequences_have_features(bags: tuple[Bag, ...], types: tuple[ShardingType, ...]) -> None:
    made = share(mix(bags, types, "adagrad"))
    assert losses(run(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline": Pipeline(kind="sparse_dist", order="overlapped")},
        {"replication": Replication(sharding_group_size=2, node_group_size=2)},
    ],
    ids=["pipeline", "replication"],
)
def test_a_step_goes_on_as_without(changes: dict[str, Any]) -> None:
    made = share(mix(EVERY, ALL, **changes))
    assert losses(run(made)) == pytest.approx(Reference(made).losses(), rel=TOLERANCE)


def test_a_feature_of_the_table_s_name_alone_changes_nothing() -> None:
    made = training(ALL, optimizer="adagrad")
    tables = tuple(
        dataclasses.replace(table, features=(dataclasses.replace(_with_features(table, 2).features[0]),))
        for table in made.workload.tables
    )
    named = with_model(made, tables=tables)
    found = run(named)
    assert found.spans == run(made).spans
    assert losses(found) == losses(run(made))


@pytest.mark.parametrize("kind", ["row_wise", "column_wise", "grid_shard"])
def test_expected_features_take_as_long_as_drawn_ones(kind: ShardingType) -> None:
    """The same calls of every rank that is simulated, and loads and a step within a few percent."""
    made = share(mix(("pooled",), (kind,), "adagrad", batch_size=512, payload="sizes"))
    made = dataclasses.replace(made.with_run(fidelity="flows", library="nccl"), cluster=cluster(4, 2, gpu=BIG))
    alike = made.with_run(fidelity="links", ranks="alike")
    every, folded = run(made), run(alike)
    ranks = {span.rank for span in folded.spans}
    labels = [sorted({(one.rank, one.label) for one in each.spans if one.rank in ranks}) for each in (every, folded)]
    assert labels[0] == labels[1]
    steps = [max(one.end_ns - one.start_ns for one in each.spans if one.kind == "step") for each in (every, folded)]
    assert steps[1] == pytest.approx(steps[0], rel=0.05)
    for part in ("input_dist.values", "input_dist.lengths", "lookup", "update"):
        loads = [_bytes(each, part, ranks) for each in (every, folded)]
        assert loads[1] == pytest.approx(loads[0], rel=0.02)
        assert loads[0] > 0


def _bytes(recording: Recording, part: str, ranks: set[int]) -> float:
    """What these ranks send and receive, or read and write, in all calls of one label."""
    spans = [one for one in recording.spans if one.rank in ranks and one.label.endswith(part)]
    return sum(one.bytes_in + one.bytes_out + one.bytes_read + one.bytes_written for one in spans)


def test_calls_of_shared_features_equal_torchrecs(tmp_path: Path) -> None:
    """Tables of 1, 2 and 3 features, of four sharding types; the ids are those of the recorded run, from files."""
    real, text = RECORDED["shared"], SAME.format(**{key: RECORDED[key] for key in ("batch", "dim", "rows")})
    for name, keys in real["features"].items():
        files = []
        for key in keys:
            bags = [bag for step in real["bags"] for of_rank in step for bag in of_rank[key]]
            (tmp_path / f"{key}.csv").write_text("".join(" ".join(map(str, bag)) + "\n" for bag in bags))
            files.append(f'{{name = "{key}", ids = {{file = "{key}.csv"}}}}')
        own = f'{{name = "{name}", rows = {RECORDED["rows"]}, features = [{", ".join(files)}]'
        text = text.replace(f'{{name = "{name}", rows = {RECORDED["rows"]}, ids_per_sample = 1', own)
        if name == "t4":
            own += ', ranks = [0, 1], min_partition = 8, sharding = ["column_wise"]}'
            text = text.replace("\n]\n", f"\n    {own},\n]\n")
    (tmp_path / "shared.toml").write_text(text)
    assert list_issued(second_step(load(tmp_path / "shared.toml"))) == without_reductions(real["calls"])


def test_a_plan_counts_the_ids_of_all_features() -> None:
    made = share(training(("table_wise",)))
    samples = made.run.batch_size * made.cluster.world_size
    ids = {row.table: row.ids_per_step for row in plan_tables(made).rows}
    assert ids == {
        table.name: pytest.approx(samples * sum(each.ids_per_sample for each in table.by_feature))
        for table in made.workload.tables
    }
