"""A script of TorchRec as a job whose plans are compared: each is simulated by running the script with that plan."""

from __future__ import annotations

import hashlib
import math
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reports.run import Run
from reports.sections.plans import YOURS, SimulatedPlan
from scenarios.compute_kernel import COPIES_KERNEL, SCENARIO_KERNELS
from scenarios.config.scenario import PlanFile, Recommender, Scenario
from scenarios.owned_folder import scratch_folder
from scenarios.planner.placed import Plan
from scenarios.planner.plan_file import plan_json
from scenarios.seam.errors import NoRoomError, ProgramError, ScenarioError
from scenarios.workloads.build import build_simulation, check_fits
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.plan_from_script import ScriptPlan
from scenarios.workloads.script.program import ScriptProgram
from twinstep.plan_choice.comparison import Simulated
from twinstep.plan_choice.evaluated_plan import record, with_plan
from twinstep.plan_choice.tables_alone import TablesAlone
from twinstep.what_ifs.what_if import options_of

_NOTE = (
    "Steps and memory are those of the script, run with each plan. The times of ranks and tables, by which the search"
    " proposes plans, are of the script's tables alone: {}."
)
_MUCH = 100  # times a GPU's memory hold any tables that a script had in it
_MEASURED = ", measured here"  # in a prediction's words on work of the CPU


class ScriptJob:
    """A script whose tables TorchRec places; it has run once, under its own plan."""

    reserved_share = None

    def __init__(
        self, scenario: Scenario, overrides: Mapping[str, object], watch: Callable[[object], bool] = lambda _: False
    ) -> None:
        """Run the script with its own plan, and read its tables from it.

        Args:
            scenario: the script's.
            overrides: values that the command replaces.
            watch: asked again and again whether to end the run.

        Raises:
            ScenarioError: it is a recording, TorchRec places no tables in it, or no other plan can be tried.
            ScriptError: the script fails.
            SearchStoppedError: `watch` ended the run.
        """
        assert isinstance(scenario.options, Script)
        self._scenario, self._script, self._overrides = scenario, scenario.options, overrides
        self.name, self.least_steps = scenario.name, scenario.run.steps
        if self._script.recording is not None:
            raise ScenarioError(
                f"{scenario.path}: expected a script, as a recording has the calls of one placement; 'twinstep plan'"
                f" of {self._script.path} runs it with others"
            )
        program = build_simulation(scenario)
        assert isinstance(program, ScriptProgram)
        self._recording = record(scenario, watch, program)
        self._run = Run.of(self._recording)
        found = _check(scenario, program.tables)
        asked, self._rated, self._places = found.asked, found.rated, found.places
        self.tables = _tables_alone(asked, _reserve(self._run, self._rated, asked))
        self._loads = _with_memory_for_all(self.tables)
        self.notes = (_NOTE.format("; ".join(found.notes)), *_measured(scenario, program.on_cpu))

    def yours(self, steps: int) -> tuple[Simulated, Plan] | None:
        """Return the run of the script's own plan, as `PlannedJob.yours` says."""
        check_fits(self._scenario, self._recording.memory)
        with scratch_folder() as folder:
            return (self._simulated(YOURS, self._run, self._rated, folder), self._json(self._rated)), self._rated

    def simulate(
        self, name: str, plan: Plan, steps: int, folder: Path, stop: Callable[[object], bool] = lambda _: False
    ) -> Simulated:
        """Run the script with a plan, as `PlannedJob.simulate` says; one with which the script fails does not fit."""
        file, content = folder / "simulated.json", self._json(plan)
        file.write_text(content, encoding="utf-8")
        given = PlanFile(path=file, sha256=hashlib.sha256(content.encode()).hexdigest())
        try:
            run = Run.of(record(self._scenario.with_workload(options=replace(self._script, plan=given)), stop))
        except ProgramError as error:
            raise NoRoomError(str(error).partition("\n")[0], 0) from error
        return self._simulated(name, run, plan, folder), content

    def command(self, file: Path, steps: int, options: Sequence[str]) -> str:
        """Return the command that predicts the script with the plan of a file; `options` set keys of their name."""
        script, cluster, given = self._script, self._scenario.cluster, {**self._overrides, "script.plan": str(file)}
        words = ["twinstep", "predict"]
        is_named = self._scenario.path.suffix == ".py"
        if is_named:
            words += ["--hosts", f"{cluster.hosts}", "--gpus-per-host", f"{cluster.host.gpus}"]
            words += ["--step-every", script.step_every] if script.step_every else []
        for name in [name for name in given if name in options]:
            words += [f"--{name.replace('_', '-')}", str(given.pop(name))]
        place = ["-m", script.module] if script.module else [str(self._scenario.path)]
        return f"{shlex.join(words)} {options_of(given)} {shlex.join([*place, *(script.args if is_named else ())])}"

    def _json(self, plan: Plan) -> str:
        host = self._scenario.cluster.host
        return plan_json(plan, host.gpus, host.gpu.kind, places=self._places)

    def _simulated(self, name: str, run: Run, plan: Plan, folder: Path) -> SimulatedPlan:
        """Return a plan whose loads are those of its tables alone; whether it fits, the script's run has shown."""
        return SimulatedPlan(name, run, Run.of(record(with_plan(self._loads, plan, folder))))


def _measured(scenario: Scenario, on_cpu: Sequence[str]) -> list[str]:
    """Return a sentence on what each run of the script measures, so that two runs with one plan differ."""
    work = [words.replace(_MEASURED, "") for words in on_cpu if _MEASURED in words]
    if not scenario.cluster.host.gpu.device.is_launched:
        work = ["all computation on CPUs"]
    return [f"Measured again in each run: {'; '.join(work)}. Smaller gains may be none."] if work else []


class _ScriptTables(NamedTuple):
    """A script's tables: a scenario that has them, the script's plan of them, and where its modules have them."""

    asked: Scenario
    rated: Plan
    places: Mapping[str, tuple[str, str]]
    notes: Sequence[str]


def _check(scenario: Scenario, found: ScriptPlan | None) -> _ScriptTables:
    """Return the script's tables.

    Raises:
        ScenarioError: TorchRec places none, or they cannot be placed otherwise.
    """
    if found is None:
        raise ScenarioError(
            f"{scenario.path}: expected a script whose tables are sharded by TorchRec's DistributedModelParallel before"
            " the first step of an optimizer; 'twinstep predict --what-if' of any script simulates other changes"
        )
    unknown = sorted({row.compute_kernel for row in found.rows} - {COPIES_KERNEL, *SCENARIO_KERNELS})
    why = [f"compute kernel {' and '.join(unknown)} is not simulated"] if unknown else []
    places = Counter(found.places.values())
    why += [f"two models have a table {name!r} of module {path!r}" for (path, name) in places if places[path, name] > 1]
    if found.asked is not None and found.rated is not None and not why:
        return _ScriptTables(found.asked, found.rated, found.places, found.notes)
    why = why or [*found.notes]
    raise ScenarioError(f"{scenario.path}: no other plan of its tables can be tried: {'; '.join(why)}")


def _reserve(run: Run, plan: Plan, asked: Scenario) -> float:
    """Return the share of memory that the planner keeps from tables: at least what the script holds besides them."""
    held = run.rank_memory
    besides = [used - plan.storage_bytes[rank] for rank, used in zip(held["rank"], held["used_bytes"], strict=True)]
    share = max(besides, default=0) / asked.cluster.host.gpu.memory_bytes
    usual = Recommender.of(asked.workload).planner.reserved_share
    return min(max(usual, math.ceil(100 * share) / 100), 0.99)


def _tables_alone(asked: Scenario, reserved_share: float) -> Scenario:
    """Return the scenario that simulates the tables without the script's dense part."""
    workload = Recommender.of(asked.workload)
    dense = f"{TablesAlone.__module__}:{TablesAlone.__name__}"
    model = replace(workload.model, dense_features=1, dense=dense)
    planner = replace(workload.planner, reserved_share=reserved_share)
    tables = replace(asked, program="dlrm", workload=replace(workload, model=model, planner=planner))
    return tables.with_run(payload="sizes")


def _with_memory_for_all(tables: Scenario) -> Scenario:
    host = tables.cluster.host
    gpu = replace(host.gpu, memory_bytes=_MUCH * host.gpu.memory_bytes)
    return replace(tables, cluster=replace(tables.cluster, host=replace(host, gpu=gpu)))
