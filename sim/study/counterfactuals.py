"""What could be changed of a scenario, each as values of its keys: what a user could write into the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scenarios.config.scenario import QComms, Scenario
from scenarios.config.toml.tree import Tree
from sim.study.curves.parameters import scaled

_RANK = 4
# What PowerSGD needs until it compresses, and steps in which it does.
_FROM, _STEPS = 2, 8
_HALVES = {"forward": "fp16", "backward": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A change in words, and the keys' values that make it, as `--set` takes them."""

    name: str
    values: Mapping[str, object]


def counterfactuals(scenario: Scenario, tree: Tree) -> list[Counterfactual]:
    """Those that say something of this scenario: of its hardware, then of what is computed and sent."""
    every = [*_of_hardware(scenario, tree), *_of_program(scenario)]
    return [Counterfactual(name=name, values=values) for name, values in every if values]


def _of_hardware(scenario: Scenario, tree: Tree) -> Iterator[tuple[str, dict[str, object]]]:
    rates = [f"cluster.gpu.flops.{dtype}" for dtype in _found(tree, "cluster.gpu.flops") or ()]
    yield "GPUs twice as fast", _doubled(tree, [*rates, "cluster.gpu.memory_rate", "cluster.gpu.l2_rate"])
    yield "network twice as fast", _doubled(tree, ["cluster.nic.rate"]) if scenario.cluster.hosts > 1 else {}
    yield "links within hosts twice as fast", _doubled(tree, ["cluster.inside.rate"])
    latencies = [f"cluster.{place}.latency" for place in ("nic", "inside", "network")]
    yield "no latency of links", {key: "0 s" for key in latencies if _found(tree, key) is not None}
    yield _launching_free(scenario, tree)
    if scenario.cluster.faults:
        yield "no faults", {"cluster.slow": []}
    yield "twice the hosts", {"cluster.hosts": 2 * scenario.cluster.hosts}


def _launching_free(scenario: Scenario, tree: Tree) -> tuple[str, dict[str, object]]:
    if scenario.cluster.host.gpu.kind == "cuda":  # graphs are there before a step
        return "launching free (CUDA graphs)", {} if scenario.launching.cuda_graphs else {"launching.cuda_graphs": True}
    kinds = [f"launches.{kind}" for kind in _found(tree, "cluster.gpu.launches") or ()]
    return "launching free", {f"cluster.gpu.{key}": "0 s" for key in ["launch", *kinds]}


def _of_program(scenario: Scenario) -> Iterator[tuple[str, dict[str, object]]]:
    if scenario.cluster.world_size > 1 and not scenario.balanced:
        yield "work perfectly balanced", {"run.balanced": True}
    if scenario.batch_size:
        yield "twice the batch of a rank", {"run.batch_size": 2 * scenario.batch_size}
    if scenario.program != "dlrm" or (model := scenario.model) is None:
        return
    if any(feature.ids.kind != "uniform" for feature in model.features):
        yield "no skew of ids", {"model.tables[*].ids": "uniform"}
    if model.dtype == "float32" and not model.autocast and scenario.cluster.host.gpu.kind == "cuda":
        yield "dense part in bfloat16 (autocast)", {"model.autocast": "bfloat16"}
    if scenario.compression.kind == "none":
        values: dict[str, object] = {
            "compression.kind": "batched_powersgd",
            "compression.matrix_approximation_rank": _RANK,
            "compression.start_powerSGD_iter": _FROM,
            "run.steps": max(scenario.steps, _STEPS),
        }
        yield f"gradients by PowerSGD of rank {_RANK}", values
    else:
        yield "gradients not compressed", {"compression.kind": "none"}
    if scenario.qcomms == QComms():
        yield "embeddings exchanged in 16 bits", {f"qcomms.{way}_precision": of for way, of in _HALVES.items()}
    if scenario.pipeline.kind == "none":
        yield "next batch's ids sent beside the step", {"pipeline.kind": "sparse_dist"}
    if scenario.planner.choose == "estimated" and scenario.planner.plan is None:
        yield "plan by simulation", {"sharding.choose": "simulated"}


def _found(tree: Tree, key: str) -> Any:
    try:
        return tree.at(tuple(key.split(".")))
    except (LookupError, TypeError):
        return None


def _doubled(tree: Tree, keys: list[str]) -> dict[str, object]:
    """Twice the quantities that the scenario or its profile has under these keys."""
    doubled = {key: scaled(_found(tree, key), 2) for key in keys}
    return {key: value for key, value in doubled.items() if value is not None}
