"""`twinstep plan` of a script: its tables are read from its run, and it runs again with each plan that is compared."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from reports.run import Run
from reports.sections.plans import PLANNERS, YOURS
from scenarios.config.scenario import Scenario
from scenarios.planner.plan import plan_tables
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError, ScriptError
from scenarios.seam.trace import Recording
from scenarios.workloads.script.command import load_given
from scenarios.workloads.script.plan_from_script import ScriptPlan, rate_plans
from scenarios.workloads.script.process.torchrec_plan import use_plan
from scenarios.workloads.script.program import ScriptProgram
from tests.scenarios.workloads.test_planned import describe, row
from twinstep.plan_choice import script_job
from twinstep.plan_choice.comparison import TimeLimit, compare_plans
from twinstep.plan_choice.evaluated_plan import record, with_plan
from twinstep.plan_choice.script_job import ScriptJob

SCRIPT = Path(__file__).parents[3] / "examples" / "scripts" / "torchrec_dlrm.py"
ON_CPU = ("2 ms per step of other work (train.py:7), measured here", "1 ms per step of copies")
TABLES = [f"t{number}" for number in range(6)]


def load_script(**values: object) -> Scenario:
    overrides = {"profile": "dgx_h100", "steps": 2, **values}
    return load_given(SCRIPT, overrides, args=["--dim", "64"], hosts=2, gpus_per_host=4)


def describe_lopsided() -> dict[str, Any]:
    """Return what a script reports that has six tables of a module on the first of 8 ranks."""
    found = describe(row("t0", 0, columns=512))
    (table,), (shard,) = found["tables"], found["rows"]
    tables = [
        {**table, "name": f"net.{name}", "path": "net", "table": name, "features": {name: 20.0}} for name in TABLES
    ]
    rows = [{**shard, "table": f"net.{name}"} for name in TABLES]
    return {**found, "batch_size": 1024, "tables": tables, "rows": rows}


@dataclass
class FakeScript:
    """A script that takes as long as its tables alone, under its own plan or else under the planner's."""

    found: ScriptPlan | None
    folder: Path
    is_full: bool = False

    def __post_init__(self) -> None:
        self.given: list[dict[str, Any]] = []

    def record(self, scenario: Scenario, stop: Any = None, program: Any = None) -> Recording:
        if scenario.program != "script":
            return record(scenario)
        if self.found is None or self.found.asked is None or self.found.rated is None:
            return Mock(Recording)
        tables = script_job._tables_alone(self.found.asked, 0.15)
        if scenario.options.plan is None:
            return record(with_plan(tables, self.found.rated, self.folder))
        self.given.append(json.loads(scenario.options.plan.path.read_text()))
        if self.is_full:
            raise ScriptError("train.py:3: OutOfMemoryError: no room\n  File ...")
        return record(with_plan(tables, plan_tables(tables), self.folder))


def job_of(script: FakeScript, monkeypatch: pytest.MonkeyPatch, **values: object) -> ScriptJob:
    scenario, program = load_script(**values), Mock(ScriptProgram, tables=script.found, on_cpu=ON_CPU)
    monkeypatch.setattr(script_job, "build_simulation", lambda _: program)
    monkeypatch.setattr(script_job, "record", script.record)
    monkeypatch.setattr(script_job, "Run", Mock(of=run_of))
    return ScriptJob(scenario, values)


def run_of(recording: Recording) -> Any:
    return Mock() if isinstance(recording, Mock) else Run.of(recording)


def test_a_script_runs_again_with_each_plan_that_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = FakeScript(rate_plans(describe_lopsided(), load_script()), tmp_path)
    job = job_of(script, monkeypatch)
    times = count(0.0, 0.1)
    found = compare_plans(job, TimeLimit(60, ProgressLine(quiet=True), lambda: next(times)), moves=1)
    assert [plan.name for plan in found.plans[:2]] == [YOURS, PLANNERS]
    assert len(script.given) >= 3  # the planner's, one with a move, and the search's
    for modules in script.given:
        assert list(modules) == ["net"]
        assert list(modules["net"]) == TABLES
    moved = script.given[1]["net"]
    assert sum(table["ranks"] != [0] for table in moved.values()) == 1
    assert json.loads(found.best_json) in script.given
    yours, best = found.plans[0], found.plans[-1]
    assert best.step_ns < yours.step_ns
    assert yours.slowest["rank"] == 0  # seen in the run of the tables
    assert yours.of_tables is not None
    measured = "2 ms per step of other work (train.py:7)"
    assert job.notes[1] == f"Measured again in each run: {measured}. Smaller gains may be none."
    assert job.command(Path("best.json"), 2, ("profile",)) == (
        f"twinstep predict --hosts 2 --gpus-per-host 4 --set script.plan=best.json {SCRIPT} --dim 64"
    )


def test_a_plan_with_which_the_script_fails_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = FakeScript(rate_plans(describe_lopsided(), load_script()), tmp_path, is_full=True)
    times = count(0.0, 20.0)
    found = compare_plans(job_of(script, monkeypatch), TimeLimit(60, ProgressLine(quiet=True), lambda: next(times)))
    assert [plan.name for plan in found.plans] == [YOURS, YOURS]
    assert found.misfits == {PLANNERS: f"The plan of {PLANNERS} does not fit: train.py:3: OutOfMemoryError: no room"}


def test_scripts_whose_tables_cannot_be_placed_otherwise_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lopsided = describe_lopsided()
    rows = [{**each, "compute_kernel": "key_value"} for each in lopsided["rows"]]
    for found, sentence in (
        (None, "expected a script whose tables are sharded by TorchRec's DistributedModelParallel"),
        ({**lopsided, "ranks": [4]}, "no other plan of its tables can be tried: not planned anew: tables are shared"),
        ({**lopsided, "rows": rows}, "can be tried: compute kernel key_value is not simulated"),
    ):
        script = FakeScript(None if found is None else rate_plans(found, load_script()), tmp_path)
        with pytest.raises(ScenarioError) as raised:
            job_of(script, monkeypatch)
        assert sentence in str(raised.value)


def test_a_plan_that_a_script_is_to_use_is_checked_and_part_of_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with pytest.raises(ScenarioError, match=f"expected {file} to be a file"):
        load_script(**{"script.plan": str(file)})
    file.write_text('{"net": []}')
    with pytest.raises(ScenarioError, match="expected tables of module 'net' as a JSON object"):
        load_script(**{"script.plan": str(file)})
    digests = {load_script().digest}
    for content in ("{}", '{"net": {}}'):
        file.write_text(content)
        digests.add(load_script(**{"script.plan": str(file)}).digest)
    assert len(digests) == 3


@dataclass
class TorchSharding:
    """TorchRec's ParameterSharding, as far as it matters here."""

    sharding_type: str
    compute_kernel: str
    ranks: list[int]
    sharding_spec: Any
    cache_params: Any = None
    bounds_check_mode: str = "warning"


@dataclass
class TorchPlan:
    """TorchRec's ShardingPlan."""

    plan: dict[str, Any]


def test_a_model_is_sharded_by_the_given_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's plan object stays as it is; a table is found by its module, or else by its name."""
    sharded: list[Any] = []
    model = type("Dmp", (), {"_init_dmp": lambda self, module: sharded.append(self._plan.plan) or module})
    spec = {"EnumerableShardingSpec": lambda shards: shards, "ShardMetadata": lambda **own: own}
    for name, names in (
        ("torchrec.distributed.model_parallel", {"DistributedModelParallel": model}),
        ("torchrec.distributed.types", {"CacheParams": lambda load_factor: load_factor}),
        ("torch.distributed._shard.sharding_spec", spec),
    ):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**names))
    shard = {"shard_offsets": [0, 0], "shard_sizes": [10, 8], "placement": "rank:3/cuda:3"}
    whole = {
        "sharding_type": "table_wise",
        "compute_kernel": "fused",
        "ranks": [3],
        "sharding_spec": {"shards": [shard]},
    }
    cached = {**whole, "compute_kernel": "fused_uvm_caching", "cache_params": {"load_factor": 0.5}}
    copied = {"sharding_type": "data_parallel", "compute_kernel": "dense", "ranks": [0, 1], "sharding_spec": None}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"a": {"t": whole}, "b": {"t": cached}, "elsewhere": {"u": copied}}))
    use_plan(file)
    own = TorchSharding("row_wise", "fused", [0], None, bounds_check_mode="fatal")
    dmp = model()
    dmp._plan = TorchPlan({"a": {"t": own, "u": own}, "b": {"t": own}, "pool": "other"})
    assert dmp._init_dmp("module") == "module"
    assert sharded == [
        {
            "a": {
                "t": replace(own, sharding_type="table_wise", ranks=[3], sharding_spec=[shard]),
                "u": replace(own, sharding_type="data_parallel", compute_kernel="dense", ranks=[0, 1]),
            },
            "b": {
                "t": TorchSharding("table_wise", "fused_uvm_caching", [3], [shard], 0.5, "fatal"),
            },
            "pool": "other",
        }
    ]
    assert own.sharding_type == "row_wise"
    dmp._plan = TorchPlan({"a": {"v": own}})
    with pytest.raises(ValueError, match="expected table 'v', which module 'a' has"):
        dmp._init_dmp("module")
