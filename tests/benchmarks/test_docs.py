"""The pages' tables of errors are what is measured and predicted today."""

from __future__ import annotations

from benchmarks import kernel_errors, measured_steps, published_memory


def test_kernels_have_todays_errors() -> None:
    """Run `python -m benchmarks.kernel_errors --write` where they have not."""
    assert kernel_errors.TABLE.read_text(encoding="utf-8") == kernel_errors.table(kernel_errors.errors())


def test_measured_steps_have_todays_errors() -> None:
    """Run `python -m benchmarks.measured_steps --table` where they have not."""
    for page, by, text in measured_steps.TABLES:
        assert measured_steps.parts(page.read_text(encoding="utf-8"), by)[1] == text(), f"{page.name}{by}"


def test_published_memory_is_what_is_kept() -> None:
    """Run `python -m benchmarks.published_memory --write` where it is not."""
    made = published_memory.table(published_memory.compare())
    assert published_memory.TABLE.read_text(encoding="utf-8") == made
