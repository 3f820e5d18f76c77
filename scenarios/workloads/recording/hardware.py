"""Check that a recording fits the scenario that plays it, and the rate that a recording keeps; loads no torch."""

from __future__ import annotations

from scenarios.config.scenario import Scenario
from scenarios.config.scenario.run_settings import DEFAULT_STEPS
from scenarios.config.toml.look import Look
from scenarios.config.toml.sections import Document, RunSection
from scenarios.config.toml.tree import KeyPath
from scenarios.workloads.recording.recorded import SCRIPT, Recorded


def check_scenario(found: Recorded, path: KeyPath, document: Document, look: Look) -> None:
    """Report hosts, GPUs, steps and values that the recording, which the key at `path` names, does not have."""
    cluster, run = document.cluster, document.run or RunSection()
    if cluster is not None and cluster.hosts not in (None, found.hosts):
        look.mistakes.add(("cluster", "hosts"), f"{found.hosts}, as in the recording")
    if cluster is not None and cluster.gpus_per_host not in (None, found.gpus_per_host):
        look.mistakes.add(("cluster", "gpus_per_host"), f"{found.gpus_per_host}, as in the recording")
    if found.program != SCRIPT and (run.steps or DEFAULT_STEPS) != found.steps:  # steps may reach into each other
        phrase = f"{found.steps}, all that the recording has"
        if document.run is None:
            look.mistakes.missing(("run",), f"steps = {phrase}")
        elif run.steps is None:
            look.mistakes.missing(("run", "steps"), phrase)
        else:
            look.mistakes.add(("run", "steps"), phrase)
    elif (run.steps or 0) > found.steps:
        look.mistakes.add(("run", "steps"), f"at most {found.steps}, which the recording has")
    if run.payload == "values":
        look.mistakes.add(("run", "payload"), "'sizes', because a recording has no values")
    if (kind := document.gpu_kind) not in (None, found.kind):
        what = {"cpu": "CPUs", "cuda": "GPUs"}
        look.mistakes.add(
            path, f"a recording on {what[str(kind)]}, as the cluster has, but it was made on {what[found.kind]}"
        )


def cpu_flops_per_s(scenario: Scenario) -> float:
    """Return the float32 rate of a script's computation on the scenario's hardware, in FLOP/s."""
    gpu = scenario.cluster.host.gpu
    return gpu.flops_per_s["float32"] * gpu.efficiency.get(SCRIPT, gpu.efficiency.get("default", 1.0))
