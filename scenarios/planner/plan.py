"""A scenario's tables to their ranks: the bridge from `Scenario` to the planner; running the plan is the program's.

Costs come from the estimators with the cluster's own bandwidths and capacities. `format_plan` prints the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scenarios.errors import ScenarioError
from scenarios.hardware import Cluster
from scenarios.planner.enumerator import EmbeddingEnumerator
from scenarios.planner.partitioner import GreedyPerfPartitioner
from scenarios.planner.plan_text import format_plan
from scenarios.planner.planner import Search
from scenarios.planner.proposers import GreedyProposer, GridSearchProposer, SmallestProposer, UniformProposer
from scenarios.planner.planned import Plan, PlannedShard, PlannedTable, plan_of
from scenarios.planner.topology import Topology
from scenarios.planner.types import ComputeKernel, ParameterConstraints, PlannerError, ShardingOption, ShardingType
from scenarios.planner.types import Storage, TensorShape, known_storage
from scenarios.scenario import Model, Scenario, Table
from scenarios.units import format_bytes

__all__ = ["Plan", "PlannedShard", "PlannedTable", "format_plan", "plan_tables", "topology_of"]

ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
ADAGRAD_ROW_BYTES = 4  # row-wise Adagrad: one float32 a row

# Shards placed in one search, over all proposals: seconds of planning, however many ranks there are.
_SHARD_BUDGET = 2_000_000
_GRID_PROPOSALS = 256
