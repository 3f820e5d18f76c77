from __future__ import annotations

import dataclasses

from reports.run import Run
from reports.sections.model import Bar
from reports.sections.run.glance import GLANCE, gradients_hidden
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.render import block
from scenarios.seam.trace import Recording, Span
from tests.reports.recordings import SCENARIO, by_hand, info, span, with_spans

CALL = {"group": "world", "call": 0, "label": "dense.gradients.mean", "stream": "side"}


def bar_of(run: Run) -> list[str]:
    """Return the lines of the bar of step 0."""
    section = GLANCE.show(RunView.of(run, 0), "terminal")
    assert section is not None
    return [line for one in section.blocks if isinstance(one, Bar) for line in text.as_text(block(one)).splitlines()]


def test_a_bar_has_a_letter_for_each_80th_of_the_step_and_shares_that_add_up() -> None:
    title, letters, legend, *_ = bar_of(Run.of(by_hand()))
    assert title == "Critical path of step 0 by kind of work, 100 ns"
    assert letters == "D" * 48 + "r" * 28 + "." * 4
    assert legend == "D dense 60.0 %   r reductions 35.0 %   . waiting 5.0 %"


def test_a_long_legend_keeps_each_letter_beside_its_name() -> None:
    kernels = ["gemm", "embedding_lookup", "embedding_update", "optimizer", "permute", "data_loader", "", "memcpy"]
    spans = [span(0, "compute", 10 * at, 10 * at + 10, kernel=kernel) for at, kernel in enumerate(kernels)]
    run = Run.of(Recording(info=info(world_size=1), spans=[span(0, "step", 0, 80), *spans]))
    lines = bar_of(run)
    assert lines[2:4] == [
        "D dense 12.5 %   L lookups 12.5 %   U table updates 12.5 %   O optimizer 12.5 %",
        "P packing 12.5 %   I input 25.0 %   X other computation 12.5 %",
    ]


def reduce(until: int, *, entered: int = 0, kind: str = "none", role: str = "reduction") -> Run:
    """Two ranks compute for 100 ns; meanwhile, and until then, they reduce gradients, which rank 1 enters later."""
    spans: list[Span] = []
    for rank in (0, 1):
        spans += [
            span(rank, "step", 0, max(until, 100)),
            span(rank, "compute", 0, 100, label="dense.backward", kernel="gemm"),
            span(rank, "all_reduce", entered if rank else 0, until, **CALL, role=role),
        ]
    scenario = {**SCENARIO, "compression": {"kind": kind}}
    return Run.of(dataclasses.replace(with_spans(by_hand(), *spans), info=info(scenario=scenario)))


def test_compression_cannot_help_where_gradients_are_hidden() -> None:
    assert gradients_hidden(reduce(90), [0]) == (
        "compressing gradients cannot help: 100.0 % of their reduction is hidden by computation; nothing is left"
    )
    assert gradients_hidden(reduce(101), [0]) == (
        "compressing gradients can hardly help: 99.0 % of their reduction is hidden by computation; the rest, transfer,"
        " is 1.0 % of the step"
    )


def test_exposed_or_unreduced_gradients_are_not_called_hidden() -> None:
    assert gradients_hidden(reduce(150), [0]) == ""
    assert gradients_hidden(reduce(90, kind="powersgd"), [0]) == ""
    assert gradients_hidden(reduce(90, role="table reduction"), [0]) == ""


def test_waiting_for_a_slow_rank_is_not_what_compression_shortens() -> None:
    # Rank 0 waits from 100 to 199, rank 1 enters then; 2 ns of transfer are left.
    said = gradients_hidden(reduce(201, entered=199), [0])
    assert said.startswith("compressing gradients can hardly help: 49.3 % of their reduction is hidden")
    assert "48.8 % is waiting for other ranks; the rest, transfer, is" in said
