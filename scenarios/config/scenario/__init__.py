"""A scenario as frozen values: the cluster, the workload, and how steps are run; `load` checks them once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from scenarios.compute_kernel import DEFAULT_KERNEL, ComputeKernel
from scenarios.config.hardware import Cluster
from scenarios.config.keys import recorded_fields
from scenarios.config.provenance import KnownErrors, Measured
from scenarios.config.scenario.job import TrainingJob
from scenarios.config.scenario.optimizers import DenseOptimizer, Optimizer, OptimizerKind
from scenarios.config.scenario.programs import Exchange, Gradients, Source, TimedCollective
from scenarios.config.scenario.recommender import (
    CACHE_LOAD_FACTOR,
    MIN_PARTITION,
    Bag,
    Feature,
    Ids,
    Interaction,
    Model,
    PlanFile,
    Planner,
    Table,
)
from scenarios.config.scenario.run_settings import RunSettings
from scenarios.config.scenario.step import (
    LEAST_POWERSGD_START,
    Buckets,
    CommPrecision,
    Compression,
    Data,
    DenseParallel,
    Launching,
    Pipeline,
    PipelineKind,
    QComms,
    Replication,
)
from scenarios.config.scenario.workload import (
    CollectiveCalls,
    GradientReduction,
    Recommender,
    UsersCode,
    Workload,
)
from scenarios.seam.trace import PLAYING
from scenarios.sharding_kind import ShardingType

__all__ = [
    "Bag",
    "Buckets",
    "CACHE_LOAD_FACTOR",
    "TimedCollective",
    "CollectiveCalls",
    "CommPrecision",
    "Compression",
    "Data",
    "DenseOptimizer",
    "DenseParallel",
    "Feature",
    "Exchange",
    "GradientReduction",
    "Gradients",
    "Ids",
    "Interaction",
    "TrainingJob",
    "LEAST_POWERSGD_START",
    "Launching",
    "MIN_PARTITION",
    "Model",
    "Optimizer",
    "OptimizerKind",
    "Pipeline",
    "PipelineKind",
    "PlanFile",
    "Planner",
    "QComms",
    "Recommender",
    "Replication",
    "RunSettings",
    "Scenario",
    "ShardingType",
    "Source",
    "Table",
    "UsersCode",
    "Workload",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Everything that a run needs."""

    name: str
    path: Path
    program: str  # its name, "package.module:factory" or "./file.py:factory"
    cluster: Cluster
    run: RunSettings
    workload: Workload = Workload()
    # The days of steps; they change no step.
    job: TrainingJob | None = field(default=None, metadata={"is_of_playing": True})
    rests_on: str = ""  # where the hardware's figures come from
    # How the profile was measured, if it was calibrated.
    measured: Measured | None = field(default=None, metadata={"is_of_playing": True})
    known_errors: KnownErrors = KnownErrors()  # known errors of the hardware's figures
    sources: tuple[Source, ...] = field(default=(), metadata={"is_of_playing": True})  # of a user's own program
    # The folder of the file that names the program; None: that of `path`.
    named_in: Path | None = field(default=None, metadata={"is_of_playing": True})
    # The keys of [cluster] beside its profile, and of [run], from which the scenario was loaded; files are absolute.
    own_keys: Mapping[str, Any] = field(default_factory=dict, compare=False, metadata={"is_of_playing": True})

    def kernel_of(self, table: Table) -> ComputeKernel:
        """Return where the table's rows lie on this cluster."""
        return table.kernel if self.cluster.host.gpu.device.has_own_memory else DEFAULT_KERNEL

    @property
    def uses_host_memory(self) -> bool:
        """Whether GPUs look up rows of some table in their host's memory."""
        return any(self.kernel_of(table).is_in_host for table in self.workload.tables)

    @property
    def copies_batches(self) -> bool:
        """Whether batches are copied from the host to the GPUs; a CPU process has only one memory."""
        return self.workload.copies_batches and self.cluster.host.gpu.device.has_own_memory

    @property
    def uses_host_path(self) -> bool:
        """Whether anything but collectives uses the links from the GPUs to their host's memory."""
        return self.uses_host_memory or self.copies_batches

    # What programs of users read of their run; `run` has all settings.

    @property
    def steps(self) -> int:
        """The number of training steps."""
        return self.run.steps

    @property
    def seed(self) -> int:
        """The seed of all that is drawn."""
        return self.run.seed

    @property
    def batch_size(self) -> int:
        """The samples per rank and step."""
        return self.run.batch_size

    @property
    def options(self) -> Any:
        """The options of a user's own program: its `Options`, or its table's values; None for built-in programs."""
        return getattr(self.workload, "options", None)

    def with_run(self, **changes: Any) -> Scenario:
        """Return the scenario with other values of these settings of its run."""
        return dataclasses.replace(self, run=dataclasses.replace(self.run, **changes))

    def with_workload(self, **changes: Any) -> Scenario:
        """Return the scenario with other values of these fields of its workload."""
        return dataclasses.replace(self, workload=dataclasses.replace(self.workload, **changes))

    def as_dict(self) -> dict[str, Any]:
        """Return the scenario as JSON-ready values.

        Fields of all built-in workloads are included (defaults where the scenario has another workload), so that run
        folders have equal keys; a user's own workload adds its fields.
        """
        own = {name: getattr(self.workload, name, usual) for name, usual in _USUAL.items()}
        parts = {"run": recorded_fields(self.run), "workload": own | recorded_fields(self.workload)}
        flat = (parts.get(name, {name: value}) for name, value in recorded_fields(self).items())
        plain = {name: _plain(value) for part in flat for name, value in part.items()}
        if plain["options"] is None:
            del plain["options"]  # built-in programs have none
        if self.sources:
            plain["sources"] = {source.name: source.sha256 for source in self.sources}
        return plain

    @property
    def sharding_ranks(self) -> int:
        """The number of ranks that hold all tables together: the world, or a sharding group."""
        replication = self.workload.replicas
        return self.cluster.world_size if replication is None else replication.sharding_group_size

    @property
    def sharding_host_ranks(self) -> int:
        """Number of ranks that the planner treats as one host: its GPUs, or in 2D parallelism `node_group_size`."""
        replication = self.workload.replicas
        return self.cluster.host.gpus if replication is None else replication.node_group_size

    @property
    def program_folder(self) -> Path:
        """The folder to which the program's file is relative."""
        return self.named_in or self.path.parent

    def digest(self) -> str:
        """Return a SHA-256 of what is computed and sent, without keys in `PLAYING`, such as payload.

        Faults and prices are left out, so that a faulty cluster can be compared with a healthy one and with a real run.
        """
        kept = {key: value for key, value in self.as_dict().items() if key not in PLAYING}
        del kept["cluster"]["faults"], kept["cluster"]["cost"]
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


# What every run folder holds of workloads, for any program.
_USUAL: dict[str, object] = {
    "model": None,
    "planner": Planner(),
    "buckets": Buckets(),
    "compression": Compression(),
    "pipeline": Pipeline(),
    "data": Data(),
    "launching": Launching(),
    "qcomms": QComms(),
    "replication": None,
    "dense_parallel": DenseParallel(),
    "exchange": None,
    "collective": None,
    "gradients": None,
    "options": None,
}


def _plain(value: Any) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(kept) for name, kept in recorded_fields(value).items()}
    if hasattr(type(value), "model_fields"):  # pydantic's, which ranks need not load
        return {key: _plain(item) for key, item in dict(value).items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, (tuple, list, set, frozenset)):
        return [_plain(item) for item in value]
    return value.name if isinstance(value, Path) else value
