"""Whatever the sharding, the bags, the order of a step and the optimizer: a step trains the model of plain torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import product
from typing import Any, get_args

import pytest

from scenarios.config.scenario import Bag, OptimizerKind, Pipeline, QComms, Replication, Scenario, ShardingType
from scenarios.seam.trace import Recording
from scenarios.sharding_kind import DISTINCT_TYPES
from scenarios.workloads.dlrm.program import DlrmProgram
from tests.sim.test_dlrm_bags import BIG, EVERY, PIPELINE, SEQUENCES, mix
from tests.sim.test_dlrm_features import share
from tests.sim.test_dlrm_host_memory import KERNELS, PREFETCH, longest, time
from tests.sim.test_dlrm_optimizers import CUT_BY_ROWS, WITH_MOMENTS, Moving, OfTorch, own, train, with_few_rows
from tests.sim.test_dlrm_qcomms import HALVES, INT8, WHOLE
from tests.sim.test_dlrm_steps import ALL, MORE, TOLERANCE, Reference, losses, play_ready, training
from tests.small import change, cluster, model_of, with_model

Types = tuple[ShardingType, ...]
Case = tuple[Callable[[], Scenario], type[Reference]]
REPLICATED = Replication(sharding_group_size=2, node_group_size=2)
OVERLAPPED = Pipeline(kind="sparse_dist", order="overlapped")


def by_element() -> Scenario:
    made = training(ALL, optimizer="adagrad")
    return with_model(made, optimizer=dataclasses.replace(model_of(made).optimizer, state="element"))


def moved(kind: OptimizerKind, types: Types, decay: float) -> Case:
    return lambda: train(training(types), own(kind, weight_decay=decay)), Moving


def few_rows(kind: OptimizerKind, types: Types, bags: tuple[Bag, ...]) -> Case:
    return lambda: with_few_rows(kind, types, bags), Moving if kind in WITH_MOMENTS else Reference


def of_types(make: Callable[..., Scenario], *every: Types, **changes: Any) -> dict[str, Case]:
    return {"+".join(types): (lambda types=types: make(types, **changes), Reference) for types in every}  # type: ignore[misc]


def bags_of(optimizer: str, *every: tuple[tuple[Bag, ...], Types]) -> dict[str, Case]:
    return {
        f"{'+'.join(bags)} of {'+'.join(types)}, {optimizer}": (
            lambda bags=bags, types=types: mix(bags, types, optimizer),  # type: ignore[misc]
            Reference,
        )
        for bags, types in every
    }


SINGLE: tuple[Types, ...] = tuple((kind,) for kind in ALL)
MIXED: tuple[tuple[tuple[Bag, ...], Types], ...] = (
    (("sequence",), SEQUENCES),
    (("distinct",), DISTINCT_TYPES),
    (("distinct", "pooled"), ALL),
    (("weighted",), ALL),
    (("weighted", "pooled"), MORE),
    (("pooled", "sequence", "weighted"), ALL),
)
ONE_BAG: list[tuple[tuple[Bag, ...], Types]] = [
    *((("sequence",), (kind,)) for kind in SEQUENCES),
    *((("distinct",), (kind,)) for kind in DISTINCT_TYPES),
]
CASES: dict[str, Case] = {
    **of_types(training, *SINGLE, ALL, MORE),
    **bags_of("adagrad", *MIXED),
    **{
        name: (make, Reference)
        for name, make in {
            "columns cut": lambda: training(MORE, dim=256),
            "columns of features cut": lambda: share(training(MORE, dim=256)),
            "columns of a sequence cut": lambda: mix(("sequence",), ("column_wise",), dim=256),
            "cat": lambda: training(ALL, "cat"),
            "dot, adagrad": lambda: training(ALL, "dot", "adagrad"),
            "adagrad by element": by_element,
            "features": lambda: share(training(ALL)),
            "features of more types": lambda: share(training(MORE)),
            # Adagrad sums the gradients of a row over all features that name it before it squares.
            "features, cat": lambda: share(training(ALL, "cat", "adagrad")),
            "features, dot": lambda: share(training(ALL, "dot", "adagrad")),
            "features of sequences": lambda: share(mix(("sequence",), SEQUENCES, "adagrad")),
            "features, weighted": lambda: share(mix(("weighted",), ALL, "adagrad")),
            "features of every bag": lambda: share(mix(EVERY, ALL, "adagrad")),
            "features in a pipeline": lambda: share(mix(EVERY, ALL, pipeline=OVERLAPPED)),
            "features, replicated": lambda: share(mix(EVERY, ALL, replication=REPLICATED)),
        }.items()
    },
    **{
        f"pipeline of {'+'.join(types)}": (
            lambda types=types: mix((*EVERY, "distinct"), types, pipeline=PIPELINE),  # type: ignore[misc]
            Reference,
        )
        for types in (ALL, ("row_wise",), ("data_parallel",))
    },
    **{
        f"{order}, {optimizer}": (
            lambda order=order, optimizer=optimizer: mix(EVERY, ALL, optimizer, pipeline=Pipeline(order=order)),  # type: ignore[misc]
            Reference,
        )
        for order, optimizer in product(("eager", "overlapped"), ("sgd", "adagrad"))
    },
    "torch's adam": (lambda: train(training(ALL), own("adam", eps=1e-12), dense=None), OfTorch),
    "torch's adam, more types": (lambda: train(training(MORE), own("adam", eps=1e-12), dense=None), OfTorch),
    "adam": moved("adam", ALL, 0.1),
    "partial_rowwise_adam": moved("partial_rowwise_adam", MORE, 0.0),
    "lamb": moved("lamb", MORE, 0.1),
    "partial_rowwise_lamb": moved("partial_rowwise_lamb", ALL, 0.1),
    **{f"few rows, {kind}": few_rows(kind, CUT_BY_ROWS, ("pooled",)) for kind in get_args(OptimizerKind)},
}
SLOW: dict[str, Case] = {
    **bags_of("adagrad", *ONE_BAG),
    **bags_of("sgd", *ONE_BAG, *MIXED),
    **{f"features of {name}": case for name, case in of_types(lambda types: share(training(types)), *SINGLE).items()},
    **{
        f"{kind}, {'+'.join(types)}, without decay": moved(kind, types, 0.0)
        for kind, types in product(WITH_MOMENTS, (ALL, MORE))
    },
    **{
        f"few rows, {kind}, {'+'.join(types)}": few_rows(kind, types, ("pooled",))
        for kind, types in product(get_args(OptimizerKind), ((one,) for one in get_args(ShardingType)))
    },
    **{
        f"few rows of every bag, {kind}": few_rows(kind, ("row_wise",), ("distinct", "sequence", "weighted"))
        for kind in get_args(OptimizerKind)
    },
}


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_every_step_trains_the_same_model(name: str) -> None:
    make, reference = {**CASES, **SLOW}[name]
    made = make()
    assert losses(play_ready(made)) == pytest.approx(reference(made).losses(), rel=TOLERANCE)
    if name.endswith("cut"):
        assert max(row.column_offset for row in DlrmProgram(made).plan) > 0


def large(*bags: Bag, types: Types, qcomms: QComms | None = None, **changes: Any) -> Scenario:
    made = mix(bags, types, batch_size=512, payload="sizes", fidelity="flows", library="nccl", **changes)
    made = dataclasses.replace(made, cluster=cluster(4, 2, gpu=BIG))
    return made if qcomms is None else change(made, qcomms=qcomms)


def hosted(pipeline: Pipeline) -> Scenario:
    made = time(KERNELS, pipeline=pipeline, batch_size=512)
    return dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, hosts=4))


FEATURES: dict[str, Types] = {f"features of {kind}": (kind,) for kind in ("row_wise", "column_wise", "grid_shard")}  # type: ignore[dict-item]
EXPECTED: dict[str, Callable[[], Scenario]] = {
    "sequence": lambda: large("sequence", types=SEQUENCES),
    "weighted": lambda: large("weighted", types=SEQUENCES),
    "distinct": lambda: large("distinct", types=DISTINCT_TYPES),
    "pipeline": lambda: large(*EVERY, types=ALL, pipeline=PIPELINE),
    "halves": lambda: large(*EVERY, types=WHOLE, dim=32, qcomms=HALVES),
    "int8": lambda: large(*EVERY, types=WHOLE, dim=32, qcomms=INT8),
    "host memory": lambda: hosted(Pipeline()),
    "host memory, prefetched": lambda: hosted(PREFETCH),
    **{name: lambda types=types: share(large("pooled", types=types)) for name, types in FEATURES.items()},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", EXPECTED)
def test_expected_batches_take_as_long_as_drawn_ones(name: str) -> None:
    """On average: the same calls of every rank that is simulated, and a step within a few percent."""
    made = EXPECTED[name]()
    every, folded = play_ready(made), play_ready(made.with_run(fidelity="links", ranks="alike"))
    ranks = {span.rank for span in folded.spans}
    labels = [sorted({(one.rank, one.label) for one in each.spans if one.rank in ranks}) for each in (every, folded)]
    assert labels[0] == labels[1]
    assert longest(folded, "step") == pytest.approx(longest(every, "step"), rel=0.05)
    for part in ("input_dist.values", "input_dist.lengths", "lookup", "update") if name in FEATURES else ():
        loads = [_bytes(each, part, ranks) for each in (every, folded)]
        assert loads[1] == pytest.approx(loads[0], rel=0.02)
        assert loads[0] > 0


def _bytes(recording: Recording, part: str, ranks: set[int]) -> float:
    """What these ranks send and receive, or read and write, in all calls of one label."""
    spans = [one for one in recording.spans if one.rank in ranks and one.label.endswith(part)]
    return sum(one.bytes_in + one.bytes_out + one.bytes_read + one.bytes_written for one in spans)
