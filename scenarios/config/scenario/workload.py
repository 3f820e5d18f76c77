"""What programs compute and send: one class for each kind of program, whose fields are the tables that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from scenarios.config.scenario.programs import Exchange, Gradients, TimedCollective
from scenarios.config.scenario.recommender import Model, PlanFile, Planner, Table
from scenarios.config.scenario.step import (
    Buckets,
    Compression,
    Data,
    DenseParallel,
    Launching,
    Pipeline,
    QComms,
    Replication,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload of any program: how gradients are reduced and kernels are launched. Only a recommender has tables.

    `plans` is the "module:function" that places the tables of a scenario, as a `planner.placed.Plan`; "": none does.
    """

    plans: ClassVar[str] = ""

    buckets: Buckets = Buckets()
    compression: Compression = Compression()
    launching: Launching = Launching()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The embedding tables, in order."""
        return ()

    @property
    def copies_batches(self) -> bool:
        """Whether batches come from the host's memory."""
        return False

    @property
    def plan_file(self) -> PlanFile | None:
        """The plan of the tables that is used unchanged; None: the planner places them."""
        return None

    @property
    def finds_plan(self) -> bool:
        """Whether simulation chooses the plan of the tables."""
        return False

    @property
    def replicas(self) -> Replication | None:
        """The sharding groups that each hold all tables; None: all ranks hold them together."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommender(Workload):
    """A recommender that is trained: program 'dlrm'."""

    plans: ClassVar[str] = "scenarios.planner.plan:plan_tables"

    model: Model
    planner: Planner = Planner()
    pipeline: Pipeline = Pipeline()
    data: Data = Data()
    qcomms: QComms = QComms()
    replication: Replication | None = None
    dense_parallel: DenseParallel = DenseParallel()

    @staticmethod
    def of(workload: Workload) -> Recommender:
        """Return `workload` as a recommender; AssertionError if it is none."""
        assert isinstance(workload, Recommender), f"a {type(workload).__name__} has no tables"
        return workload

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.model.tables

    @property
    def copies_batches(self) -> bool:
        return self.data.copies

    @property
    def plan_file(self) -> PlanFile | None:
        return self.planner.plan

    @property
    def finds_plan(self) -> bool:
        return self.planner.choose == "simulated"

    @property
    def replicas(self) -> Replication | None:
        return self.replication


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCalls(Workload):
    """One collective a step: programs 'collective' and 'all_to_all', which has an exchange."""

    exchange: Exchange | None = None
    collective: TimedCollective | None = None

    @staticmethod
    def of(workload: Workload) -> Exchange | TimedCollective:
        """Return the workload's only call; AssertionError if it has none."""
        assert isinstance(workload, CollectiveCalls), f"a {type(workload).__name__} calls no collective alone"
        call = workload.exchange or workload.collective
        assert call is not None, "each of the two programs needs its table"
        return call


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientReduction(Workload):
    """Gradients that are compressed and reduced: program 'powersgd'."""

    gradients: Gradients

    @staticmethod
    def of(workload: Workload) -> Gradients:
        """Return the workload's gradients; AssertionError if it is no reduction of gradients."""
        assert isinstance(workload, GradientReduction), f"a {type(workload).__name__} reduces no gradients alone"
        return workload.gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersCode(Workload):
    """A user's own program or script: its `Options`, or the values of its table."""

    options: Any
