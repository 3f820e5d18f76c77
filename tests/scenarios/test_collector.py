"""Loading freezes what a command has loaded, and nothing of whoever else calls."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

from scenarios.collector import loading


class Circle:
    def __init__(self) -> None:
        self.own = self


def test_a_callers_garbage_is_collected_after_loading() -> None:
    gc.disable()
    try:
        garbage = weakref.ref(Circle())
        with loading():
            pass
    finally:
        gc.enable()
    gc.collect()
    assert garbage() is None


def test_a_command_keeps_what_it_has_loaded_from_the_collector() -> None:
    code = (
        "import gc\nfrom scenarios.interruption import end\nfrom scenarios.collector import loading\n"
        "def command():\n    before = gc.get_freeze_count()\n    with loading():\n        kept.append([])\n"
        "    return int(gc.get_freeze_count() <= before)\n"
        "kept = []\nend(command)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
