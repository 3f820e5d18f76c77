"""All changes of a program that apply to its observed computations."""

from __future__ import annotations

from scenarios.config.scenario import Scenario
from scenarios.seam.program import Program
from sim.rank.observed import Observed
from twinstep.what_ifs.counterfactuals import Counterfactual
from twinstep.what_ifs.program_changes import compiled, cuda_graphs, fused_optimizer, index_backward, padding
from twinstep.what_ifs.program_changes.kernels import Step


def program_changes(scenario: Scenario, program: Program, observed: Observed) -> list[Counterfactual]:
    """Return the changes of a program on GPUs, the largest possible saving first; none on CPUs."""
    gpu = scenario.cluster.host.gpu
    if not gpu.device.is_launched:
        return []
    step = Step(observed.last, observed.before, gpu)
    found = [
        *cuda_graphs.proposals(scenario, step),
        *compiled.proposals(scenario, program, step),
        *padding.proposals(step),
        *fused_optimizer.proposals(step),
        *index_backward.proposals(step),
    ]
    return sorted(found, key=lambda one: -one.saves_at_most_ns)
