"""Comparison of TorchRec's plan for a script's tables with our planner's, both rated by our estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from operator import attrgetter
from typing import Any, Literal

from scenarios.compute_kernel import COPIES_KERNEL, DEFAULT_KERNEL, SCENARIO_KERNELS, ComputeKernel
from scenarios.config.scenario import CACHE_LOAD_FACTOR, Feature, Model, Optimizer, Recommender, Scenario, Table
from scenarios.config.units import format_bytes
from scenarios.planner.pinned_plan import rate_plan
from scenarios.planner.placed import Plan
from scenarios.planner.plan import plan_tables
from scenarios.planner.plan_file import GivenShard, GivenTable
from scenarios.seam.errors import ScenarioError
from scenarios.seam.trace import PlanRow
from scenarios.sharding_kind import DEFAULT_TYPES, SEQUENCE_TYPES, ShardingKind, ShardingType
from scenarios.workloads.dlrm.tables.fbgemm_limits import OPTIMIZERS

_Dtype = Literal["float32", "bfloat16", "float16"]
_DTYPES: dict[str, _Dtype] = {"FP32": "float32", "BF16": "bfloat16", "FP16": "float16"}
# TorchRec's default for a feature without a given pooling factor.
_POOLING_FACTOR = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPlan:
    """A script's sharding plan: TorchRec's shards (`rows`) and, for comparison, those that our planner chooses (`own`).

    Both have our estimator's costs. `own` is empty without a plan. `rated` is the script's plan of the tables that
    `asked`, a recommender without a dense part, has; both are None where notes say why nothing is planned anew.
    `places` are the path of each table's module and the table's name there, by the name in plans.
    """

    rows: tuple[PlanRow, ...]
    own: tuple[PlanRow, ...] = ()
    notes: tuple[str, ...] = ()
    asked: Scenario | None = None
    rated: Plan | None = None
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def rate_plans(found: Mapping[str, Any], scenario: Scenario) -> ScriptPlan:
    """Rate a script's plan (from `torchrec_plan.plan_found`) and our own on the scenario's cluster.

    Notes explain missing ratings and plans.
    """
    rows = tuple(PlanRow(**row) for row in found["rows"])
    world_size = scenario.cluster.world_size
    if found["ranks"] != [world_size]:
        groups = " and ".join(map(str, found["ranks"]))
        return ScriptPlan(rows=rows, notes=(f"not planned anew: tables are shared by {groups} of {world_size} ranks",))
    if not found["batch_size"]:
        return ScriptPlan(rows=rows, notes=("not planned anew: no batch reached the tables",))
    if missing := [table["name"] for table in found["tables"] if table["name"] not in {row.table for row in rows}]:
        return ScriptPlan(rows=rows, notes=(f"not planned anew: no shard of {', '.join(missing)} was seen",))
    notes: list[str] = []
    given = {table["name"]: _placement_of(table, rows) for table in found["tables"]}
    recommender = Recommender(model=_model(found, given, notes))
    asked = replace(scenario.with_run(batch_size=found["batch_size"]), workload=recommender)
    rated, own = _rate(asked, given, notes), _own(asked, notes)
    if rated is not None:
        kernels = {row.table: row.compute_kernel for row in rows}
        rows = tuple(replace(row, compute_kernel=kernels[row.table]) for row in rated.rows)
    own_rows = () if own is None else own.rows
    # Recordings of earlier releases have no paths.
    places = {table["name"]: (table.get("path", ""), table.get("table", table["name"])) for table in found["tables"]}
    return ScriptPlan(rows=rows, own=own_rows, notes=tuple(notes), asked=asked, rated=rated, places=places)


def _rate(asked: Scenario, given: Mapping[str, GivenTable], notes: list[str]) -> Plan | None:
    tables = tuple(replace(table, sharding=(given[table.name].sharding_type.value,)) for table in asked.workload.tables)
    try:
        plan = rate_plan(given, asked.with_workload(model=replace(Recommender.of(asked.workload).model, tables=tables)))
    except ScenarioError as error:
        notes.append(f"TorchRec's plan is not rated: {'; '.join(error.sentences)}")
        return None
    held_bytes = max(plan.storage_bytes)
    if held_bytes > plan.capacity_bytes:
        rank, room = plan.storage_bytes.index(held_bytes), format_bytes(plan.capacity_bytes)
        notes.append(f"TorchRec's plan does not fit: rank {rank} holds {format_bytes(held_bytes)} in {room}")
    return plan


def _own(asked: Scenario, notes: list[str]) -> Plan | None:
    try:
        return plan_tables(asked)
    except ScenarioError as error:
        notes.append(f"no plan of ours: {'; '.join(error.sentences)}")
        return None


def _placement_of(table: Mapping[str, Any], rows: Sequence[PlanRow]) -> GivenTable:
    """Return the placement of a table, from its rows of the plan."""
    own = sorted(
        (row for row in rows if row.table == table["name"]), key=attrgetter("column_offset", "row_offset", "rank")
    )
    kernel = own[0].compute_kernel
    return GivenTable(
        name=table["name"],
        sharding_type=ShardingKind(own[0].sharding_type),
        ranks=tuple(row.rank for row in own),
        shards=tuple(
            GivenShard(
                rank=row.rank,
                row_offset=row.row_offset,
                column_offset=row.column_offset,
                rows=row.rows,
                columns=row.columns,
            )
            for row in own
        ),
        kernel=ComputeKernel(kernel) if kernel in SCENARIO_KERNELS else DEFAULT_KERNEL,
        load_factor=table["load_factor"],
    )


def _model(found: Mapping[str, Any], given: Mapping[str, GivenTable], notes: list[str]) -> Model:
    """Return the script's tables as a scenario's model; append assumptions to the notes."""
    tables = found["tables"]
    unknown = [
        name for table in tables for name, ids in (table["features"] or {table["name"]: None}).items() if not ids
    ]
    types_of = sorted({table["dtype"] or "unknown" for table in tables})
    dtypes = [_DTYPES[each] for each in types_of if each in _DTYPES] or ["float32"]
    widest: _Dtype = "float32" if "float32" in dtypes else dtypes[0]
    if len(types_of) > 1 or types_of[0] not in _DTYPES:
        notes.append(f"elements of type {' and '.join(types_of)} are planned as {widest}")
    kernels = sorted({row["compute_kernel"] for row in found["rows"]} - {COPIES_KERNEL, *SCENARIO_KERNELS})
    if kernels:
        notes.append(f"kernel {' and '.join(kernels)} is rated as {DEFAULT_KERNEL}")
    notes.append(f"{found['batch_size']:,} samples per rank, ids as in rank 0's first step")
    if unknown:
        notes.append(f"ids per sample of {_some(unknown)} are unknown: {_POOLING_FACTOR:g} is assumed")
    made = tuple(_table(table, given[table["name"]]) for table in tables)
    for name, of_kind in (("", DEFAULT_TYPES), ("of tables that are not pooled ", SEQUENCE_TYPES)):
        if any(bool(table.sequence) == bool(name) for table in made):
            notes.append(f"ours may choose {name}among {', '.join(of_kind)}")
    return Model(
        dense_features=0, tables=made, embedding_dtype=widest, optimizer=_optimizer(found["optimizers"], notes)
    )


def _table(table: Mapping[str, Any], place: GivenTable) -> Table:
    rows, dim = place.size
    features = tuple(
        Feature(name=name, ids_per_sample=ids or _POOLING_FACTOR) for name, ids in table["features"].items()
    )
    total = sum(feature.ids_per_sample for feature in features) or _POOLING_FACTOR
    sharding: tuple[ShardingType, ...] = DEFAULT_TYPES if table["is_pooled"] else SEQUENCE_TYPES
    if place.kernel.is_in_host:  # TorchRec looks up copies in the GPU's memory
        sharding = tuple(kind for kind in sharding if not ShardingKind(kind).is_copied)
    return Table(
        name=table["name"],
        rows=rows,
        dim=dim,
        ids_per_sample=total,
        features=features,
        sharding=sharding,
        weighted=table["is_weighted"],
        sequence=0 if table["is_pooled"] else ceil(total),
        kernel=place.kernel,
        cache_load_factor=place.load_factor or CACHE_LOAD_FACTOR,
    )


def _optimizer(names: Sequence[str], notes: list[str]) -> Optimizer:
    """Return the optimizer with the most state per element; append assumptions to the notes."""
    known = [OPTIMIZERS[name] for name in names if name in OPTIMIZERS]
    if not known:
        said = " and ".join(names) or "unknown, as rank 0 has no fbgemm table"
        notes.append(f"the tables' optimizer is {said}: planned as SGD")
        return Optimizer()
    if len(names) > 1:
        notes.append(f"tables have optimizers {', '.join(names)}: all are planned with the largest")
    return max(known, key=lambda each: (each.element_numbers, each.row_numbers))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4:,} more" if len(names) > 4 else "")
