"""Compiled code of an older version of a module is forgotten, and that of the present one is kept."""

from __future__ import annotations

import os
from pathlib import Path

from scenarios.compiled import compiler


def test_an_index_that_is_older_than_its_module_goes(tmp_path: Path) -> None:
    module, cache = tmp_path / "loops.py", tmp_path / "__pycache__"
    module.write_text("")
    cache.mkdir()
    names = ("loops._old-1.py311.nbi", "loops._new-1.py311.nbi", "others._old-1.py311.nbi")
    for name in names:
        (cache / name).write_text("")
        os.utime(cache / name, ns=(0, module.stat().st_mtime_ns + ("_new" in name) * 10**9 - 5 * 10**8))
    compiler(str(module))
    assert sorted(path.name for path in cache.iterdir()) == sorted(names[1:])
