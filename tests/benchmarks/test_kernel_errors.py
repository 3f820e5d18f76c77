"""The residual table of docs/explanation/kernels.md is what the command says today."""

from __future__ import annotations

from benchmarks.kernel_errors import TABLE, errors, table


def test_the_docs_have_todays_errors() -> None:
    """Run `python -m benchmarks.kernel_errors --write` where they have not."""
    assert TABLE.read_text(encoding="utf-8") == table(errors())
