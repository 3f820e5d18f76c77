"""Possible changes of a scenario, each as values of its keys that a user could write into the file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from scenarios.config.scenario import LEAST_POWERSGD_START, Feature, QComms, Recommender, Scenario, Table
from scenarios.config.toml.tree import Tree
from scenarios.seam.program import Program
from scenarios.workloads.registry import find
from sim.rank.observed import Rewrite
from twinstep.studies.curves.parameters import scale_quantity

Group = Literal["setting", "hardware", "more", "diagnosis"]

_RANK = 4
_STEPS = 8  # enough for some steps in which PowerSGD compresses
_HALVES = {"forward": "fp16", "backward": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A change in words, and the values of keys that make it, as for `--set`, or its rewrite of kernels.

    Attributes:
        group: "setting": free for a user to set, or write; "hardware": has to be bought; "more": more GPUs have to be
            bought; "diagnosis": impossible, but shows where time goes.
        plans_anew: whether tables cannot keep their places, or the change is to move tables.
        takes_memory: whether a rank, or the simulation, takes more memory, so that it may not fit.
        rewrite: makes kernels in place of the program's; None: none are changed.
        program: is simulated in place of the scenario's program; None: that.
        made_by: how a user changes the program, in words; "" where `values` state it.
        repeats: the step whose work each step has with the change, and which alone compares with it; None: its own.
        replays: whether the program that was simulated can be simulated again with the change.
        saves_at_most_ns: an upper bound on its saving per step, in ns.
        barred: why the program cannot have it, in words; "": it can.
    """

    name: str
    group: Group
    values: Mapping[str, object] = field(default_factory=dict)
    plans_anew: bool = False
    takes_memory: bool = False
    rewrite: Rewrite | None = None
    program: Program | None = None
    made_by: str = ""
    repeats: int | None = None
    replays: bool = False
    saves_at_most_ns: float = math.inf
    barred: str = ""

    @property
    def effort(self) -> int:
        """The rank of its simulation by what it takes: of the same program, another one, a larger one, many plans."""
        if "sharding.choose" in self.values:
            return 3
        return 2 if self.takes_memory else int(not self.replays or self.program is not None)


def counterfactuals(scenario: Scenario, tree: Tree) -> list[Counterfactual]:
    """Return the changes that apply to this scenario: settings, then hardware, then diagnosis."""
    without = _without(scenario, tree)
    diagnosis = (Counterfactual(name=name, group="diagnosis", values=values) for name, values in without)
    every = [*_settings(scenario), *_hardware(scenario, tree), *diagnosis]
    return [one for one in every if one.values]


def _settings(scenario: Scenario) -> Iterator[Counterfactual]:
    program = find(scenario.program, scenario.program_folder)
    if program.batch_size == "required":
        twice = {"run.batch_size": 2 * scenario.run.batch_size}
        yield Counterfactual(name="twice the batch per rank", group="setting", values=twice, takes_memory=True)
    workload = scenario.workload
    if not isinstance(workload, Recommender):
        return
    model = workload.model
    if model.dtype == "float32" and not model.autocast and scenario.cluster.host.gpu.device.is_launched:
        yield _setting("dense part in bfloat16 (autocast)", {"model.autocast": "bfloat16"})
    if workload.compression.kind != "none":
        yield _setting("gradients not compressed", {"compression.kind": "none"})
    elif scenario.cluster.world_size > 1 and not workload.launching.grouped_all_reduce:
        values: dict[str, object] = {
            "compression.kind": "batched_powersgd",
            "compression.matrix_approximation_rank": _RANK,
            "compression.start_powerSGD_iter": LEAST_POWERSGD_START,
            "run.steps": max(scenario.run.steps, _STEPS),
        }
        yield _setting(f"gradients by PowerSGD of rank {_RANK}", values)
    if workload.qcomms == QComms() and model.dtype == "float32" and scenario.cluster.world_size > 1:
        yield _setting(
            "embeddings exchanged in 16 bits", {f"qcomms.{way}_precision": of for way, of in _HALVES.items()}
        )
    if workload.pipeline.kind == "none":
        yield _setting("next batch's ids sent during the step", {"pipeline.kind": "sparse_dist"})
    if not workload.finds_plan and workload.plan_file is None and scenario.cluster.world_size > 1:
        chosen = {"sharding.choose": "simulated"}
        yield Counterfactual(name="plan chosen by simulation", group="setting", values=chosen, plans_anew=True)


def _setting(name: str, values: Mapping[str, object]) -> Counterfactual:
    return Counterfactual(name=name, group="setting", values=values)


def _hardware(scenario: Scenario, tree: Tree) -> Iterator[Counterfactual]:
    cluster = scenario.cluster
    rates = [f"cluster.gpu.flops.{dtype}" for dtype in _find(tree, "cluster.gpu.flops") or ()]
    faster = _double(tree, [*rates, "cluster.gpu.memory_rate", "cluster.gpu.l2_rate"])
    yield Counterfactual(name="GPUs twice as fast", group="hardware", values=faster)
    if cluster.hosts > 1:
        faster = _double(tree, ["cluster.nic.rate"])
        yield Counterfactual(name="network twice as fast", group="hardware", values=faster)
    if cluster.host.gpus > 1:
        faster = _double(tree, ["cluster.inside.rate"])
        yield Counterfactual(name="links within hosts twice as fast", group="hardware", values=faster)
    if scenario.workload.plan_file is None:  # a plan file places tables on exactly these hosts
        yield Counterfactual(
            name="twice the hosts",
            group="more",
            values={"cluster.hosts": 2 * cluster.hosts},
            plans_anew=True,
            takes_memory=True,
        )


def _without(scenario: Scenario, tree: Tree) -> Iterator[tuple[str, Mapping[str, object]]]:
    has_peers = scenario.cluster.world_size > 1
    if has_peers:
        latencies = [f"cluster.{place}.latency" for place in ("nic", "inside", "network")]
        yield "no latency of links", {key: "0 s" for key in latencies if _find(tree, key) is not None}
    if scenario.cluster.host.gpu.device.runs_on_cores:  # on GPUs CUDA graphs, a setting, have this effect
        kinds = [f"launches.{kind}" for kind in _find(tree, "cluster.gpu.launches") or ()]
        yield "no launch time", {f"cluster.gpu.{key}": "0 s" for key in ["launch", *kinds]}
    if scenario.cluster.faults:
        yield "no faults", {"cluster.faults": []}
    if has_peers and not scenario.run.balanced:
        yield "work perfectly balanced", {"run.balanced": True}
    if scenario.workload.tables:
        yield "no skew of ids", _without_skew(scenario)


def _without_skew(scenario: Scenario) -> dict[str, object]:
    """Return values that draw each id of a bag uniformly from all rows; ids of a file keep their number per bag."""
    places = {f"model.tables[{number}]": table for number, table in enumerate(scenario.workload.tables)}
    bags: dict[str, Table | Feature] = {place: table for place, table in places.items() if not table.features}
    bags |= {
        f"{place}.features[{number}]": feature
        for place, table in places.items()
        for number, feature in enumerate(table.features)
    }
    skewed = {place: bag for place, bag in bags.items() if bag.ids.kind != "uniform"}
    files = {place: bag for place, bag in skewed.items() if bag.ids.kind == "file"}
    if skewed and not files and not any(table.features for table in places.values()):
        return {"model.tables[*].ids": "uniform"}
    values: dict[str, object] = {f"{place}.ids": "uniform" for place in skewed}
    for place, bag in files.items():
        mean = bag.ids_per_sample
        is_fixed = bag.ids_per_sample_kind == "fixed"
        values[f"{place}.ids_per_sample"] = int(mean) if is_fixed else {"mean": mean}
    return values


def _find(tree: Tree, key: str) -> Any:
    try:
        return tree.at(tuple(key.split(".")))
    except (LookupError, TypeError):
        return None


def _double(tree: Tree, keys: list[str]) -> dict[str, object]:
    """Return twice the quantities that the scenario or its profile has under these keys."""
    doubled = {key: scale_quantity(_find(tree, key), 2) for key in keys}
    return {key: value for key, value in doubled.items() if value is not None}
