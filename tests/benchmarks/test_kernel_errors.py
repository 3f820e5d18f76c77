"""The residual tables in docs/explanation/kernels.md are what the command says today."""

from __future__ import annotations

from benchmarks.kernel_errors import PAGE, errors, parts, table


def test_the_docs_have_todays_errors() -> None:
    """Run `python -m benchmarks.kernel_errors --write` where they have not."""
    assert parts(PAGE.read_text(encoding="utf-8"))[1] == table(errors())
