"""Bar: a progress line on stderr, where that is a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

# Drawing takes time from the cores that ranks are measured on.
_DRAWN_PER_S = 1


class Bar:
    """A progress line; nothing if `quiet` or where stderr is no terminal."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(
            *columns, console=console, disable=quiet or not console.is_terminal, refresh_per_second=_DRAWN_PER_S
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Show what is under way, and how far it is."""
        self._progress.update(self._task, description=what, completed=done, total=total)
