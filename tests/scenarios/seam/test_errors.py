"""Which source files belong to this project, so that messages leave their lines out."""

from __future__ import annotations

from pathlib import Path

from scenarios.seam.errors import is_installed, is_ours

ROOT = Path(__file__).parents[3]


def test_files_of_a_linked_checkout_are_ours(tmp_path: Path) -> None:
    (link := tmp_path / "checkout").symlink_to(ROOT)
    for base in (ROOT, link):
        assert is_ours(str(base / "sim" / "run.py"))
        assert is_installed(str(base / "sim" / "run.py"))
        assert not is_ours(str(base / "examples" / "scripts" / "ddp.py"))
