"""The subject of a run's report: the run, and the steps that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reports.analysis.repeats import Plays
from reports.analysis.step_breakdown import steady_kept, step_shown
from reports.run import Run
from reports.sections.run.headline import only
from reports.terminal import text


@dataclass(frozen=True, slots=True)
class RunView:
    """A run, and the `step` whose critical path is shown: a typical one, or the requested one; None without any.

    `draws` show how a prediction's steps vary from run to run; `also` are steps and ranks that the timeline must show.
    """

    run: Run
    step: int | None
    draws: Plays | None = None
    also: Sequence[tuple[int, int]] = ()

    @classmethod
    def of(
        cls, run: Run, asked: int | None = None, draws: Plays | None = None, also: Sequence[tuple[int, int]] = ()
    ) -> RunView:
        """Return the view of a run.

        Raises:
            ReportError: the run has no step `asked`, or its spans were left out.
        """
        return cls(run, step_shown(run, asked), draws, also)

    @property
    def kept_steps(self) -> list[int]:
        """The steady steps that have spans."""
        return steady_kept(self.run)

    @property
    def which(self) -> str:
        """The steps of the view and, if not all ranks' spans were kept, the ranks, in words."""
        return f"{text.steps(self.kept_steps)}{only(self.run)}"

    @property
    def phrase_on_ranks(self) -> str:
        """A phrase ", seen on N of M ranks" if spans of some ranks were left out; else ""."""
        return only(self.run)

    def why_absent(self) -> str:
        """Return why there are no steady steps with spans; "" if there are."""
        if self.kept_steps:
            return ""
        return "This run has not kept spans of these steps." if len(self.run.steps) else "No rank completed a step."
