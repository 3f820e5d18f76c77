"""What the planner makes of tables with several features is what TorchRec's makes of them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.scenario import Feature
from scenarios.planner.options import options_of
from scenarios.planner.topology import Topology
from scenarios.planner.types import known_perf, known_storage
from tests.scenarios.planner.test_plan import cluster, scenario, table

PLANNED = json.loads((Path(__file__).parents[2] / "data/torchrec_step.json").read_text())["planned"]


@pytest.mark.parametrize("found", PLANNED, ids=lambda found: str(found["sharding_type"]))
def test_features_are_priced_as_by_torchrec(found: dict[str, Any]) -> None:
    """Perf to the last bit, and storage, of the shards that benchmarks/torchrec_step.py had TorchRec estimate."""
    factors = found["pooling_factors"]
    features = tuple(Feature(name=f"f{at}", ids_per_sample=each) for at, each in enumerate(factors))
    one = dataclasses.replace(
        table("t", 1001, [found["sharding_type"]], dim=256), features=features, ids_per_sample=sum(factors)
    )
    given = scenario([one], cluster(2, 2), optimizer="sgd").with_run(batch_size=64)
    (option,) = options_of(one, given, Topology(4, "cuda", local_world_size=2))
    first = option.shards[0]
    assert option.input_lengths == factors
    assert known_storage(first).hbm == found["hbm"]
    assert [*astuple(known_perf(first))][:5] == found["perf"]
