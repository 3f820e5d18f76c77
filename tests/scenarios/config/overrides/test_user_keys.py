"""Names of a scenario's values are printed as the keys that a user writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scenarios.config.load import load
from scenarios.config.overrides.user_keys import user_key
from tests.mistakes import mistakes_of

LIBRARY = Path(__file__).parents[4] / "scenarios" / "library"
# What no file says: where the scenario and its figures come from.
_DERIVED = {"path", "rests_on", "known_errors", "sources"}


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("cluster.host.nics.link.bytes_per_s", "cluster.nic.rate"),
        ("cluster.host.gpus", "cluster.gpus_per_host"),
        ("cluster.host.gpu.ramps_ns.gemm", "cluster.gpu.ramps.gemm"),
        ("cluster.faults", "cluster.faults"),
        ("cluster.faults.0.part.gpu", "cluster.faults[0]"),
        ("cluster.faults.0.begin_ns", "cluster.faults[0].begin"),
        ("planner.plan.sha256", "sharding.plan"),
        ("buckets.cap_bytes", "buckets.cap"),
        ("batch_size", "run.batch_size"),
        ("timeout_s", "run.timeout"),
        ("compute_times.path", "run.compute_times"),
        ("model.tables.3.ids.exponent", "model.tables[3].ids"),
        ("model.tables.*.rows", "model.tables[*].rows"),
        ("world_size", "world_size"),
    ],
)
def test_a_value_has_the_key_that_a_file_gives_it(path, key):
    assert user_key(tuple(path.split("."))) == key


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = {"0": value[0]}
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*path, str(name)))
    else:
        yield path


@pytest.mark.parametrize("name", ["criteo_dlrm_2x4_straggler", "powersgd_4x2_3g", "all_reduce_4x1_200mbit"])
def test_every_name_of_a_ready_scenario_is_taken_after_set(name):
    """A value that none of them takes: each sentence is of a value or of the key `nothing`, and each key has one."""
    file = LIBRARY / f"{name}.toml"
    scenario = load(file, {}).as_dict()
    keys = {user_key(path) for path in leaves(scenario) if path[0] not in _DERIVED}
    assert len(keys) > 40
    given = {key: {"nothing": 1} for key in sorted(keys - {"name", "program"})}
    sentences = mistakes_of(load, file, given)
    refused = [each for each in sentences if "unknown key" in each and ".nothing = 1: " not in each]
    refused += [each for each in sentences if "cannot be overridden" in each or "a place that" in each]
    assert refused == []
    assert [key for key in given if not any(each.startswith(f"--set {key}") for each in sentences)] == []
