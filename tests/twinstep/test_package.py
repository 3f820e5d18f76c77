"""An installed wheel has all that the commands need: nothing is found in a checkout."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.twinstep import test_own_rooms
from twinstep.docs.cli import pages

ROOT = Path(__file__).parents[2]
users = test_own_rooms.folder  # a fixture: a folder with a reports.py and others
PACKAGES = ("twinstep", "sim", "real", "scenarios", "reports")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of the source distribution."""
    source = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "docs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    pack = "from setuptools import build_meta; build_meta.build_sdist('.')"
    subprocess.run([sys.executable, "-c", pack], cwd=source, check=True, capture_output=True, timeout=110)
    (packed,) = source.glob("*.tar.gz")
    line = [*pip, "--no-build-isolation", "--wheel-dir", str(source), str(packed)]
    subprocess.run(line, check=True, timeout=110)
    (wheel,) = source.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was unpacked."""
    site = tmp_path_factory.mktemp("site")
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


def test_a_release_has_one_number_and_one_date() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = dict(
        re.findall(r'^(version|date-released): "?([\w.-]+)"?$', (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    )
    heading = re.search(r"^## (.*), (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading
    assert [project["version"], cited["date-released"]] == [*heading.groups()]
    assert cited["version"] == project["version"]


def test_docs_prints_pages_of_the_wheel(site: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "contributing" / "seam.md").read_text(encoding="utf-8")
    assert install(site, tmp_path, "-m", "twinstep", "docs", "seam") == page
    assert install(site, tmp_path, "-m", "twinstep", "docs").count("\n") == len(pages()) + 4


@pytest.mark.slow
def test_an_installed_wheel_answers_in_a_folder_with_modules_of_its_packages_names(
    wheel: Path, users: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    venv = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=110)
    (own,) = venv.glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    line = ["--python", str(venv / "bin" / "python"), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *line], check=True, timeout=110)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def said(words: str) -> str:
        typed = f"{venv}/bin/{words}"
        done = subprocess.run(
            shlex.split(typed), cwd=users, env=environment, capture_output=True, text=True, timeout=200, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), typed
        return done.stdout

    (users / "tables.csv").write_text("name,rows,dim,ids_per_sample\nuser,5000,64,1\nitem,9000,64,20\n")
    assert said("twinstep predict mlperf_dcnv2").startswith("mlperf_dcnv2: predicted, 8 ranks on 1 host")
    assert "dgx_h100" in said("twinstep profiles")
    assert said("twinstep init --tables tables.csv --hosts 1 --gpus-per-host 2").startswith("job.toml: 2 tables")
    assert said("twinstep plan job.toml --seconds 2 --out plan.json").startswith("TorchRec's planner")
    assert said("twinstep predict job.toml --set sharding.plan=plan.json --quiet --out run") == "run\n"
    assert said("twinstep report run").endswith("report: run/reports/report.html\n")
    code = "import twinstep, real, sim; print(real.__file__, sim.__file__, twinstep.__file__)"
    assert said(f"python -c {shlex.quote(code)}").split() == [
        f"{own}/{name}/__init__.py" for name in ("real", "sim", "twinstep")
    ]
