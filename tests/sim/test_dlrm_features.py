"""Several features a table: the same model as in plain torch, TorchRec's calls, and expected loads as drawn ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import (
    Feature,
    Ids,
    Scenario,
    Table,
)
from scenarios.planner.plan import plan_tables
from tests.sim.test_dlrm_steps import ALL, losses, play_ready, training
from tests.sim.test_step_order import SAME, list_issued, second_step, without_reductions
from tests.small import with_model

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


def test_a_feature_of_the_table_s_name_alone_changes_nothing() -> None:
    made = training(ALL, optimizer="adagrad")
    tables = tuple(
        dataclasses.replace(table, features=(dataclasses.replace(_with_features(table, 2).features[0]),))
        for table in made.workload.tables
    )
    named = with_model(made, tables=tables)
    found = play_ready(named)
    assert found.spans == play_ready(made).spans
    assert losses(found) == losses(play_ready(made))


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
