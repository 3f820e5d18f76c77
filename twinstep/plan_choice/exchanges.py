"""Learn the times of exchanges by their load from the plans that were simulated."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from scenarios.config.scenario import Scenario
from scenarios.planner.placed import Plan
from scenarios.run_length import runs_of
from scenarios.seam import roles
from scenarios.seam.trace import Recording, Span
from scenarios.sharding_kind import ShardingKind
from twinstep.plan_choice.placing import Floats
from twinstep.plan_choice.shard_options import (
    AVERAGING,
    COPIED,
    LOOK_UP,
    PHASES,
    UPDATE,
    ShardOptions,
    ids_phase,
    rows_phase,
)

_OF_IDS, _OF_ROWS = (roles.SIZES, roles.IDS), (roles.ROWS, roles.GRADIENTS)
_SHARDED = tuple(kind for kind in ShardingKind if not kind.is_copied)


class Exchanges:
    """A model of a step's phases: `weights` [phases] are ms of a step per unit of load on the phase's bottleneck rank.

    Sharding types not simulated yet are priced as the mean of the others. The all-reduce of replicated tables has no
    weight: it ends before other tables are updated, or too many tables are replicated.
    """

    def __init__(self, scenario: Scenario, ways: ShardOptions) -> None:
        self._numbers = {table.name: number for number, table in enumerate(scenario.workload.tables)}
        self._ranks, self._ways = scenario.sharding_ranks, ways
        self._found: dict[int, float] = {}  # ms per unit of load, by phase
        self._reduced = 1.0  # gradients of copies: simulated over expected time
        self.latency_ms = 0.0  # of a sharding type's exchanges, independent of their load

    @property
    def weights(self) -> Floats:
        weights = np.zeros(PHASES)
        weights[[LOOK_UP, UPDATE, AVERAGING]] = 1.0
        for phase_of in ids_phase, rows_phase:
            known = {kind: self._found[phase_of(kind)] for kind in _SHARDED if phase_of(kind) in self._found}
            for kind in _SHARDED:
                weights[phase_of(kind)] = known.get(kind, sum(known.values()) / max(len(known), 1))
        return weights

    def copied_ms(self, table: int) -> float | None:
        """Return the time of an all-reduce of a table's gradients; None where it may not be replicated."""
        expected_ms = self._ways.exchanged_ms(table, COPIED, 0)
        return None if expected_ms is None else expected_ms * self._reduced

    def learn(self, plan: Plan, recording: Recording, step: int) -> None:
        """Set the weights from the times of a step's exchanges and the loads of its bottleneck ranks."""
        loads = self._loads(plan)
        took = _took_ms(recording, step)
        latencies = [ms for (kind, role), ms in took.items() if kind and role == roles.SIZES]
        # A sharding type has five exchanges in a step: sizes, lengths, ids, rows and their gradients.
        self.latency_ms = 5 * max(latencies, default=0.0)
        for kind in _SHARDED:
            for phase, own in (ids_phase(kind), _OF_IDS), (rows_phase(kind), _OF_ROWS):
                ms = sum(ms for (of, role), ms in took.items() if of == kind and role in own)
                if loads[phase] > 0:
                    self._found[phase] = ms / loads[phase]
        copied, reduced_ms = loads[rows_phase(COPIED)], took.get((COPIED, roles.TABLE_REDUCTION), 0.0)
        if copied > 0 and reduced_ms > 0:
            self._reduced = reduced_ms / copied

    def _loads(self, plan: Plan) -> Floats:
        """Return the load of each phase's bottleneck rank, [phases]."""
        loads = np.zeros((PHASES, self._ranks))
        for table in plan.tables:
            for count, row in runs_of(table.shards):
                ranks = slice(row.rank, row.rank + count)
                kind = row.sharding_kind
                expected_ms = self._ways.exchanged_ms(self._numbers[row.table], kind, row.columns)
                loads[ids_phase(kind), ranks] += row.ids_per_step
                loads[rows_phase(kind), ranks] += expected_ms or 0.0
        busiest: Floats = loads.max(axis=1)
        return busiest


def _took_ms(recording: Recording, step: int) -> dict[tuple[str, str], float]:
    """Return the ms of exchanges, from the entry of the last rank, by sharding type and role."""
    calls: defaultdict[tuple[str, str, str, str, int], list[Span]] = defaultdict(list)
    for span in recording.spans:
        if span.step == step and span.group:
            calls[span.sharding, span.label, span.role, span.group, span.call].append(span)
    # By sharding type, label and role, the longest among groups.
    longest: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for (sharding, label, role, _, _), spans in calls.items():
        # From the last entry: the wait for late ranks belongs to what they did before.
        ms = (max(span.end_ns for span in spans) - max(span.start_ns for span in spans)) / 1e6
        # Groups of one exchange run at the same time, so the longest one counts, not their sum.
        longest[sharding, label, role] = max(longest[sharding, label, role], ms)
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (sharding, _, role), ms in longest.items():
        found[sharding, role] += ms
    return found
