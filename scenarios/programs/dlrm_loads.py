"""What the hosts of a DLRM have to do in a step, as expected: who is like whom; playing it is left to `dlrm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scenarios.alike import Floats
from scenarios.hardware import Cluster
from scenarios.programs.distribution import draws_of
from scenarios.scenario import Model
from scenarios.sparse.expected_jagged import ExpectedInput, ExpectedJagged
from scenarios.sparse.groups import ShardedGroup


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


def host_loads(groups: Sequence[ShardedGroup], inputs: Sequence[ExpectedInput], cluster: Cluster) -> Floats:
    """Of each rank's part of each group: ids for it, elements of their rows, keys and columns; [hosts, numbers]."""
    gpus = cluster.host.gpus
    loads = [np.zeros((cluster.hosts, 0))]
    for group, exchange in zip(groups, inputs, strict=True):
        layout = group.layout
        if layout.kind == "replicated":
            continue  # the same on every rank
        of_rank = np.zeros((cluster.world_size, 4))
        for owner, pieces in enumerate(layout.pieces):
            for rank in range(owner * layout.span, (owner + 1) * layout.span) if pieces else ():
                ids, columns = exchange.ids_for(rank), [piece.columns for piece in pieces]
                elements = sum(count * width for count, width in zip(ids, columns, strict=True))
                of_rank[rank] = sum(ids), elements, len(ids), sum(columns)
        loads.append(of_rank.reshape(cluster.hosts, 4 * gpus))
    return np.hstack(loads)
