"""What the hosts of a DLRM have to do in a step, as expected: who is like whom; playing it is left to `dlrm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scenarios.config.host_classes import Floats
from scenarios.config.scenario import Model
from scenarios.planner.planned import Plan
from scenarios.sparse.expected_jagged import ExpectedInput, ExpectedJagged
from scenarios.sparse.groups import ShardedGroup
from scenarios.workloads.dlrm.embedding import ID_BYTES, LENGTH_BYTES
from scenarios.workloads.dlrm.id_distribution import draws_of


def expected_features(model: Model, batch_size: int) -> ExpectedJagged:
    """What each rank has of every table before any exchange."""
    draws = [draws_of(table, batch_size) for table in model.tables]
    return ExpectedJagged(
        keys=tuple(table.name for table in model.tables),
        ids=tuple(float(one.moments().mean[0]) for one in draws),
        stride=batch_size,
    )


def expected_inputs(groups: Sequence[ShardedGroup], model: Model, batch_size: int) -> tuple[ExpectedInput, ...]:
    """The groups' input exchanges."""
    draws = {table.name: draws_of(table, batch_size) for table in model.tables}
    return tuple(ExpectedInput(group.layout, draws, group.label) for group in groups)


def rank_loads(groups: Sequence[ShardedGroup], inputs: Sequence[ExpectedInput], world_size: int) -> Floats:
    """Of each rank's part of each group: ids for it from one rank, elements of their rows, keys and columns;
    [groups, ranks, 4]. Tables that every rank has a copy of are left out.
    """
    loads = np.zeros((len(groups), world_size, 4))
    for of_rank, group, exchange in zip(loads, groups, inputs, strict=True):
        layout = group.layout
        for owner, pieces in enumerate(layout.pieces) if layout.kind != "replicated" else ():
            for rank in range(owner * layout.span, (owner + 1) * layout.span) if pieces else ():
                ids, columns = exchange.ids_for(rank), [piece.columns for piece in pieces]
                elements = sum(count * width for count, width in zip(ids, columns, strict=True))
                of_rank[rank] = sum(ids), elements, len(ids), sum(columns)
    return loads


def host_loads(loads: Floats, gpus: int) -> Floats:
    """The same by host, [hosts, numbers]."""
    groups, ranks, kinds = loads.shape
    return loads.transpose(1, 0, 2).reshape(ranks // gpus, gpus * groups * kinds)


def held_bytes(loads: Floats, plan: Plan, batch_size: int, element_bytes: int) -> Floats:
    """What rows, their optimizer and the buffers of `dlrm_memory` take, [ranks], but for what all ranks have alike."""
    ids, _, keys, columns = np.moveaxis(loads.sum(axis=0), -1, 0)
    samples = batch_size * plan.world_size
    buffers = 2 * (ID_BYTES * plan.world_size * ids + LENGTH_BYTES * samples * keys + samples * columns * element_bytes)
    return np.asarray(np.array(plan.weight_bytes) + np.array(plan.optimizer_bytes) + buffers)
