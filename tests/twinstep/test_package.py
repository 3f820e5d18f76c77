"""An installed wheel has all that the commands need: nothing is found in a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from twinstep.docs.cli import pages

ROOT = Path(__file__).parents[2]
PACKAGES = ("twinstep", "sim", "real", "scenarios", "reports")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was unpacked."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name in (*PACKAGES, "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    line = [*pip, "--no-build-isolation", "--wheel-dir", str(source), str(source)]
    subprocess.run(line, check=True, timeout=110)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site


def install(site: Path, folder: Path, *words: str) -> str:
    """What Python prints that finds this project in `site` alone."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    line = [sys.executable, *words]
    done = subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, timeout=110, check=False
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_wheel_has_every_file_of_the_packages(site: Path) -> None:
    def files(root: Path) -> set[Path]:
        found = (path.relative_to(root) for name in PACKAGES for path in (root / name).rglob("*"))
        return {path for path in found if "__pycache__" not in path.parts and path.suffix}

    assert files(site) == files(ROOT)
    assert all((site / name / "py.typed").is_file() for name in PACKAGES)


def test_the_wheels_metadata_has_license_and_command(site: Path) -> None:
    (about,) = site.glob("twinstep-*.dist-info")
    assert "License-Expression: Apache-2.0\n" in (about / "METADATA").read_text()
    assert (about / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "twinstep = twinstep.__main__:script" in (about / "entry_points.txt").read_text()


def test_docs_prints_pages_of_the_wheel(site: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "contributing" / "seam.md").read_text(encoding="utf-8")
    assert install(site, tmp_path, "-m", "twinstep", "docs", "seam") == page
    assert install(site, tmp_path, "-m", "twinstep", "docs").count("\n") == len(pages()) + 4


@pytest.mark.slow
def test_a_ready_scenario_is_predicted_and_reported_far_from_a_checkout(site: Path, tmp_path: Path) -> None:
    assert install(site, tmp_path, "-m", "sim", "criteo_small_2x2", "--out", "run", "--quiet") == "run\n"
    assert install(site, tmp_path, "-m", "reports", "run").endswith("report: run/reports/report.html\n")
    code = (
        "import real, reports, scenarios, sim, twinstep; print(twinstep.predict('criteo_small_2x2').info.complete);"
        "print(*(package.__file__ for package in (twinstep, sim, real, scenarios, reports)), sep='\\n')"
    )
    found = install(site, tmp_path, "-c", code).splitlines()
    assert found == ["True", *(f"{site}/{name}/__init__.py" for name in PACKAGES)]
