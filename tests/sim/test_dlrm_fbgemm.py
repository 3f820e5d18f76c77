"""Program `dlrm` with fbgemm's rows: in every sharding each rank's tables become what our own kernels make of them."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, Literal

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scenarios.config.scenario import Bag, Optimizer, Pipeline, Replication, Scenario, ShardingType
from scenarios.seam.rank import Rank
from scenarios.workloads.dlrm import sparse_part
from scenarios.workloads.dlrm.program import DlrmProgram
from scenarios.workloads.dlrm.tables import embedding
from scenarios.workloads.dlrm.tables.embedding import Rows
from scenarios.workloads.dlrm.tables.embedding_fbgemm import FbgemmRows
from sim.run import simulate
from tests.sim.test_dlrm_bags import EVERY, SEQUENCES, mix
from tests.sim.test_dlrm_features import share
from tests.sim.test_dlrm_optimizers import own, train
from tests.sim.test_dlrm_steps import ALL, MORE, losses, training
from tests.small import cluster, with_model

pytestmark = [
    pytest.mark.usefixtures("fbgemm"),
    pytest.mark.filterwarnings("ignore:fbgemm..dense_embedding_codegen_lookup_function"),
]

# Of weights below 1 after three steps, whose gradients are sums of some ten float32 in another order.
CLOSE = 1e-6
EACH: tuple[ShardingType, ...] = tuple(dict.fromkeys((*ALL, *MORE)))
ADAGRAD = Optimizer(kind="adagrad", learning_rate=0.1, eps=0.1)
OPTIMIZERS = (Optimizer(learning_rate=0.5), ADAGRAD, dataclasses.replace(ADAGRAD, state="element"))


@dataclasses.dataclass
class Run:
    """Losses by step, and all ranks' rows."""

    losses: list[float]
    rows: list[Rows]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Simulate a scenario, whose tables a library holds."""

    def play(made: Scenario, library: Literal["numba", "fbgemm"]) -> Run:
        held: list[Rows] = []

        class Kept(Rows):
            def __init__(self, *given: Any, **options: Any) -> None:
                super().__init__(*given, **options)
                held.append(self)

        monkeypatch.setattr(sparse_part, "Rows", Kept)
        monkeypatch.setattr(embedding, "library_of", lambda device: library)
        return Run(losses(simulate(made, DlrmProgram(made))), held)

    return play


def check_alike(play: Any, made: Scenario) -> Run:
    ours, theirs = play(made, "numba"), play(made, "fbgemm")
    assert theirs.losses == pytest.approx(ours.losses, rel=CLOSE)
    for before, after in zip(ours.rows, theirs.rows, strict=True):
        for one, other in zip([*before.weights, *before.states], [*after.weights, *after.states], strict=True):
            torch.testing.assert_close(other.flatten(), one.flatten(), rtol=CLOSE, atol=CLOSE)
    assert isinstance(theirs, Run)
    return theirs


def which_fused(run: Run) -> set[bool]:
    return {isinstance(each._held, FbgemmRows) for each in run.rows if each.prices.pieces}


@pytest.mark.parametrize(
    ("types", "optimizer"),
    [
        pytest.param((kind,), optimizer, marks=[pytest.mark.slow] * (optimizer is not ADAGRAD))
        for kind, optimizer in product(EACH, OPTIMIZERS)
    ]
    + [(ALL, optimizer) for optimizer in OPTIMIZERS],
    ids=str,
)
def test_every_sharding_and_optimizer_moves_rows_alike(
    played: Any, types: tuple[ShardingType, ...], optimizer: Optimizer
) -> None:
    run = check_alike(played, train(training(types, "cat"), optimizer))
    assert which_fused(run) == {kind != "data_parallel" for kind in types}


def test_columns_that_are_cut_are_looked_up_alike(played: Any) -> None:
    made = train(training(MORE, "cat", dim=256), ADAGRAD)
    assert max(row.column_offset for row in DlrmProgram(made).plan) > 0
    check_alike(played, made)


@pytest.mark.parametrize(
    ("bags", "types"),
    [(("weighted",), ALL), (("sequence",), SEQUENCES), (("distinct",), ("row_wise", "table_wise")), (EVERY, ALL)],
    ids=str,
)
def test_every_bag_of_several_features_is_looked_up_alike(
    played: Any, bags: tuple[Bag, ...], types: tuple[ShardingType, ...]
) -> None:
    check_alike(played, train(share(mix(bags, types)), ADAGRAD))


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline": Pipeline(kind="semi_sync")},
        {"pipeline": Pipeline(kind="prefetch_sparse_dist", order="overlapped", accumulation=2)},
        {"replication": Replication(sharding_group_size=2, node_group_size=2)},
    ],
    ids=lambda changes: str(next(iter(changes.values()))),
)
def test_pipelines_and_replicas_train_alike(played: Any, changes: dict[str, Any]) -> None:
    """Also where the next batch is looked up before this one's rows are updated, and where replicas are averaged."""
    check_alike(played, train(training(ALL, "cat", **changes), ADAGRAD))


@pytest.mark.parametrize("kind", ["adam", "partial_rowwise_lamb"])
def test_optimizers_that_fbgemm_lacks_on_cpus_run_unfused(played: Any, kind: Any) -> None:
    run = check_alike(played, train(training(ALL, "cat"), own(kind, eps=0.1)))
    assert which_fused(run) == {False}


class Operators(TorchDispatchMode):
    """Counts torch's operators on tensors with values, and what programs read back, while `ranks` are in a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.ranks, self.count, self.read = 0, 0, Counter[str]()
        for name in ("tolist", "item", "cpu", "__bool__", "__int__"):
            monkeypatch.setattr(Tensor, name, self._watch(name, getattr(Tensor, name)))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += bool(self.ranks) and not any(isinstance(each, Tensor) and each.is_meta for each in args)
        return function(*args, **(kwargs or {}))

    def _watch(self, name: str, usual: Any) -> Any:
        def reads(tensor: Tensor, *given: Any, **options: Any) -> Any:
            caller = sys._getframe(1).f_code
            if self.ranks and not tensor.is_meta and re.search("/scenarios/(sparse|workloads)/", caller.co_filename):
                self.read[f"{caller.co_name}: {name}"] += 1
            return usual(tensor, *given, **options)

        return reads


@pytest.mark.parametrize(("kind", "reads"), [("table_wise", 2), ("row_wise", 3), ("data_parallel", 0)])
def test_a_step_has_as_many_operators_however_many_tables_there_are(
    kind: ShardingType, reads: int, played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits for sizes of what the ranks exchange alone; each wait would empty a GPU's queue."""
    few, many = (counted_step(tables_of(kind, count), played, monkeypatch) for count in (4, 12))
    assert few == many
    assert sum(few[1].values()) == reads, few


def tables_of(kind: ShardingType, count: int) -> Scenario:
    """As many tables of one sharding, on two ranks."""
    made = train(training((kind,), "cat", cluster=cluster(1, 2)), ADAGRAD)
    tables = tuple(
        dataclasses.replace(made.workload.tables[0], name=f"table {number}", sharding=(kind,))
        for number in range(count)
    )
    return with_model(made, tables=tables)


def counted_step(made: Scenario, play: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[float, dict[str, float]]:
    """Return the operators of the second step, and what is read back by whom: of one rank."""
    ranks, usual = made.cluster.world_size, Rank.step
    with monkeypatch.context() as patch, Operators(patch) as operators:

        @contextmanager
        def step(rank: Rank, index: int) -> Iterator[None]:
            operators.ranks += index == 1
            with usual(rank, index):
                yield
            operators.ranks -= index == 1

        patch.setattr(Rank, "step", step)
        play(made, "fbgemm")
    return operators.count / ranks, {name: count / ranks for name, count in operators.read.items()}
