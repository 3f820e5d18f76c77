"""A key that is added leaves the digests of scenarios as they are; those of older runs are written down here."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from scenarios.config.keys import LATER
from scenarios.config.scenario import (
    CollectiveCalls,
    Exchange,
    GradientReduction,
    Gradients,
    Recommender,
    Scenario,
    Table,
    UsersCode,
    Workload,
)
from tests import small

TABLE = Table(name="t", rows=10, dim=4, ids_per_sample=2.0, sharding=("table_wise",))
WORKLOADS = {
    "recommender": Recommender(model=small.NO_MODEL),
    "tables": Recommender(
        model=small.model_of(small.with_model(small.scenario(model=small.NO_MODEL), tables=(TABLE,)))
    ),
    "calls": CollectiveCalls(exchange=Exchange(size_bytes=8)),
    "gradients": GradientReduction(gradients=Gradients(shapes=((2, 3),))),
    "users": UsersCode(options=None),
}
DIGESTS = {
    "recommender": "1f5258b3cfce9ff9bb1b4fd359699e4eaf7a4d41e608f6dcbbd682db03242331",
    "tables": "88b8d621841062afd10e2ad624d1767d0dfa90f10b1705a61dd843630b3394a3",
    "calls": "24888bde15a4c2fb2487686f142ccd445abb14047aba4736fd2c370162c8329f",
    "gradients": "c4d6ee010fb0871041f6d0dd29a53b5f8c3cb57a461cc2351ee2c4a284a86709",
    "users": "638f3acde39bb04f1db716024da0ecd44bc899922d11043728017479b4fe3ccd",
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_digests_of_older_runs_are_kept(name: str) -> None:
    """A new key of a workload, a cluster or a run without `LATER` changes them."""
    assert small.scenario(workload=WORKLOADS[name]).digest() == DIGESTS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldStage:
    """A table as it was."""

    first: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStage:
    """A table with a key more."""

    first: int = 1
    second: int = field(default=2, metadata=LATER)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldStages(Workload):
    stages: tuple[OldStage | NewStage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStages(OldStages):
    more: NewStage | None = field(default=None, metadata=LATER)


def of(workload: Workload) -> Scenario:
    return small.scenario(workload=workload)


def test_a_new_key_or_table_enters_the_digest_only_where_it_is_set() -> None:
    old = of(OldStages(stages=(OldStage(), OldStage(first=3))))
    new = of(NewStages(stages=(NewStage(), NewStage(first=3))))
    assert new.as_dict() == old.as_dict()
    assert new.digest() == old.digest()
    changed = of(NewStages(stages=(NewStage(), NewStage(first=3, second=4))))
    assert changed.as_dict()["stages"] == [{"first": 1}, {"first": 3, "second": 4}]
    assert of(NewStages(stages=(), more=NewStage())).as_dict()["more"] == {"first": 1}
    digests = {old.digest(), changed.digest(), of(NewStages(stages=old.workload.stages, more=NewStage())).digest()}  # type: ignore[attr-defined]
    assert len(digests) == 3
