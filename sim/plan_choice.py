"""The plan that the simulator finds quickest: the planner proposes, the simulator plays, and says by what to go on.

TorchRec's estimator knows no caches, repeated ids, contention or overlap. So kernels of shards are priced as the
simulator prices them, and exchanges by how much longer than expected they were in the plans that were played.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from scenarios.config.scenario import PlanFile, Scenario
from scenarios.config.units import format_ns
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import PLAN_FILE, plan_json
from scenarios.planner.types import Perf, Shard, ShardingOption, ShardingType, known_perf
from scenarios.seam.errors import ScenarioError
from scenarios.seam.kernel import Kernel
from scenarios.seam.run_length import runs_of
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build_simulation
from scenarios.workloads.dlrm.tables.shard_price import shard_kernels
from sim.engine.roofline import cost
from sim.run import simulate

# A sharding type alone is not played where the planner expects its busiest rank to take so many times as long.
_MOST_WORSE = 2.0
_ROUNDS = 3
# Which are played alike.
_BY_COLUMNS = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.TABLE_COLUMN_WISE)
_STEPS = 3  # the last of which is looked at


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A plan that was played: what proposed it, the ms of its busiest rank by that, and its simulated step in ns."""

    name: str
    expected_ms: float
    step_ns: int
    plan: Plan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The quickest plan of those that were `tried`, the planner's own first."""

    best: Tried
    tried: tuple[Tried, ...]

    @property
    def gain(self) -> float:
        """Share of the step under the planner's own plan that the best one saves."""
        return 1 - self.best.step_ns / self.tried[0].step_ns

    @property
    def sentence(self) -> str:
        """What was found; without a full stop."""
        best, first = (format_ns(tried.step_ns) for tried in (self.best, self.tried[0]))
        plans = f"plan: the quickest of {len(self.tried)} that were simulated, {best} a step"
        return f"{plans}; the planner's own takes {first}, {self.gain:.1%} of which is saved"


class Planned(NamedTuple):
    """A scenario that can be built, and what there is to be said of its plan, in sentences without a full stop."""

    scenario: Scenario
    notes: tuple[str, ...] = ()


@contextmanager
def with_simulated_plan(scenario: Scenario, say: Callable[[str], None] = lambda _: None) -> Iterator[Planned]:
    """The scenario with the plan that it asks to be found by simulation, whose file is there inside; one that asks for
    none as it is.

    Raises:
        ScenarioError: no plan fits.
    """
    if scenario.planner.choose == "estimated" or scenario.model is None:
        yield Planned(scenario)
        return
    with TemporaryDirectory(prefix="twinstep-") as folder:
        say("choosing a plan")
        choice = choose_plan(scenario, Path(folder))
        yield Planned(with_plan(scenario, choice.best.plan, Path(folder, PLAN_FILE)), (choice.sentence,))


def choose_plan(scenario: Scenario, folder: Path) -> Choice:
    """Propose, play and price anew; a plan is a file in `folder` while it is played.

    The same scenario gives the same plan: no clock is looked at.

    Raises:
        ScenarioError: no plan fits.
    """
    scenario = dataclasses.replace(scenario, planner=dataclasses.replace(scenario.planner, choose="estimated"))
    search = _Search(scenario, folder)
    first = plan_tables(scenario)
    search.play("planner", first)
    for kind in _types(scenario):
        search.propose_alone(kind, _MOST_WORSE * max(first.perf_ms))
    for number in range(_ROUNDS):
        if not search.propose(f"priced {number + 1}"):
            break
    return Choice(best=min(search.tried, key=lambda tried: tried.step_ns), tried=tuple(search.tried))


def with_plan(scenario: Scenario, plan: Plan, file: Path) -> Scenario:
    """The scenario with that plan, written to a file, in place of the planner's."""
    gpu = scenario.cluster.host.gpu
    text = plan_json(plan, scenario.cluster.host.gpus, gpu.kind)
    file.write_text(text)
    types = {table.name: (table.sharding_type,) for table in plan.tables}
    given = PlanFile(path=file, sha256=hashlib.sha256(text.encode()).hexdigest(), is_found=True)
    return _changed(
        dataclasses.replace(scenario, planner=dataclasses.replace(scenario.planner, choose="estimated", plan=given)),
        lambda table: {"sharding": types[table.name], "ranks": ()},
    )


class _Search:
    """What has been played, and what that says of costs."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._scenario, self._folder, self._gpu = scenario, folder, scenario.cluster.host.gpu
        assert scenario.model is not None, "only a scenario with a model has tables to plan"
        self._numbers = {table.name: number for number, table in enumerate(scenario.model.tables)}
        self._reserved = scenario.planner.reserved_share
        self._seen: set[bytes] = set()
        self._kernels_ms: dict[tuple[Any, ...], tuple[float, float]] = {}
        self._exchanged_ms: dict[tuple[str, str, int], float] = {}  # by table, type and columns, as expected
        self._slower: dict[str, float] = {}  # exchanges, by type, than expected
        self.tried: list[Tried] = []

    def propose_alone(self, kind: str, most_ms: float) -> None:
        """Play the planner's plan of one sharding type, for all tables that may take it, if it is not much worse."""
        alone = _changed(self._scenario, lambda each: {"sharding": (kind,)} if kind in each.sharding else {})
        with suppress(ScenarioError):  # it does not fit
            plan = plan_tables(alone)
            if max(plan.perf_ms) <= most_ms:
                self.play(f"{kind} alone", plan)

    def propose(self, name: str) -> bool:
        """Play what the planner proposes by what is known, slowest tables placed first; whether it was new and fits.

        Where the whole of a rank's memory does not, no rank gets more than the fullest one of the planner's own plan.
        """
        planner = dataclasses.replace(self._scenario.planner, sort_by="perf", reserved_share=self._reserved)
        try:
            plan = plan_tables(dataclasses.replace(self._scenario, planner=planner), self._price)
            return self.play(name, plan)
        except ScenarioError:
            least = 1 - max(self.tried[0].plan.storage_bytes) / self._gpu.memory_bytes
            if self._reserved >= least:
                return False
            self._reserved = least
            return self.propose(name)

    def play(self, name: str, plan: Plan) -> bool:
        """Play a plan; whether it is new.

        Raises:
            ScenarioError: it does not fit.
        """
        places = [
            (
                "" if table.sharding_type in _BY_COLUMNS else table.sharding_type,
                [(count, row.rank, row.rows, row.columns) for count, row in runs_of(table.shards)],
            )
            for table in plan.tables
        ]
        key = hashlib.sha256(repr(places).encode()).digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        steps = min(self._scenario.steps, _STEPS)
        played = dataclasses.replace(with_plan(self._scenario, plan, self._folder / PLAN_FILE), steps=steps)
        recording = simulate(played, build_simulation(played))
        lasts = [one for one in recording.spans if one.kind == "step" and one.step == steps - 1]
        step_ns = max(one.end_ns for one in lasts) - min(one.start_ns for one in lasts)
        self.tried.append(Tried(name=name, expected_ms=max(plan.perf_ms), step_ns=step_ns, plan=plan))
        self._learn(plan, recording, steps - 1)
        return True

    def _price(self, option: ShardingOption, shard: Shard) -> Perf:
        """Kernels as the simulator has them, exchanges as it found them."""
        expected, kind = known_perf(shard), option.sharding_type
        self._exchanged_ms[option.name, kind, shard.size[1]] = expected.fwd_comms + expected.bwd_comms
        slower = self._slower.get(kind, max(self._slower.values(), default=1.0))
        looked_up_ms, updated_ms = self._kernels(option.name, kind, shard)
        return Perf(looked_up_ms, expected.fwd_comms * slower, updated_ms, expected.bwd_comms * slower)

    def _kernels(self, table: str, kind: str, shard: Shard) -> tuple[float, float]:
        (first, left), (count, width) = shard.offset, shard.size
        key = table, kind == ShardingType.DATA_PARALLEL, first, count, width
        if key not in self._kernels_ms:
            number = self._numbers[table]
            rows, columns = range(first, first + count), range(left, left + width)
            look_up, update = shard_kernels(self._scenario, number, kind, rows, columns)
            self._kernels_ms[key] = self._ms(look_up), self._ms(update)
        return self._kernels_ms[key]

    def _ms(self, kernel: Kernel) -> float:
        """Without launch, which a pass over all shards has once."""
        price = cost(kernel, self._gpu)
        return 1e3 * max(price.arithmetic_s, price.memory_bytes / self._gpu.memory_bytes_per_s)

    def _learn(self, plan: Plan, recording: Recording, step: int) -> None:
        """How much longer than expected the exchanges of each sharding type were."""
        if not self._exchanged_ms:
            plan_tables(self._scenario, self._price)
        expected_ms: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        for table in plan.tables:
            for row in table.shards:
                # Of pinned tables nothing is proposed, and nothing expected.
                of_shard = self._exchanged_ms.get((row.table, row.sharding_type, row.columns), 0.0)
                expected_ms[table.sharding_type][row.rank] += of_shard
        for kind, found_ms in _exchanges_ms(recording, step).items():
            most_ms = max(expected_ms[kind].values(), default=0.0)
            if most_ms > 0:
                self._slower[kind] = found_ms / most_ms


def _types(scenario: Scenario) -> list[str]:
    assert scenario.model is not None, "only a scenario with a model has tables to plan"
    return list(dict.fromkeys(kind for table in scenario.model.tables if not table.ranks for kind in table.sharding))


def _changed(scenario: Scenario, changes: Any) -> Scenario:
    """With other fields of its tables."""
    assert scenario.model is not None, "only a scenario with a model has tables to plan"
    tables = tuple(dataclasses.replace(each, **changes(each)) for each in scenario.model.tables)
    return dataclasses.replace(scenario, model=dataclasses.replace(scenario.model, tables=tables))


def _exchanges_ms(recording: Recording, step: int) -> dict[str, float]:
    """What the exchanges of a step's rows and ids take, by sharding type, from when all ranks have come."""
    calls: defaultdict[tuple[str, str, int], list[Span]] = defaultdict(list)
    for span in recording.spans:
        if span.step == step and span.group:
            calls[span.label, span.group, span.call].append(span)
    longest: defaultdict[str, float] = defaultdict(float)  # by label, of several groups' calls
    for (label, _, _), spans in calls.items():
        ms = (max(span.end_ns for span in spans) - max(span.start_ns for span in spans)) / 1e6
        longest[label] = max(longest[label], ms)
    found: defaultdict[str, float] = defaultdict(float)
    for label, ms in longest.items():
        found[label.partition(".")[0]] += ms
    return found
