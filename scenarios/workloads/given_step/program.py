"""The program `given_step`: every rank's step takes the time that the scenario states, and sends nothing."""

from __future__ import annotations

from scenarios.config.host_classes import uniform_host_classes
from scenarios.config.scenario import Scenario
from scenarios.do_nothing import do_nothing
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.roles import DENSE


class GivenStep(Program):
    """A program whose steps take the time `job.step` on every rank; a real rank sleeps for it."""

    def __init__(self, scenario: Scenario) -> None:
        assert scenario.job is not None, "the checks require job.step"
        assert scenario.job.step_ns is not None, "the checks require job.step"
        self._steps = scenario.run.steps
        self._kernel = Kernel(kind="elementwise", lasts_ns=scenario.job.step_ns, launches=0)
        self.host_classes = uniform_host_classes(scenario)

    async def __call__(self, rank: Rank) -> None:
        for step in range(self._steps):
            with rank.step(step):
                await rank.compute(self._kernel, do_nothing, label="step", role=DENSE)
