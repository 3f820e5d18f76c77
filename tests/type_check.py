"""`python -m tests.type_check`: mypy as it is set up, without garbage collection: three quarters of its time."""

from __future__ import annotations

import gc

from mypy.__main__ import console_entry


def _do_nothing(*_: object) -> None:
    """Stand for functions of `gc` with which mypy would collect again."""


if __name__ == "__main__":
    gc.disable()
    gc.enable, gc.set_threshold = _do_nothing, _do_nothing  # type: ignore[assignment]
    console_entry()
