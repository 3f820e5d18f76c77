"""Which room may know which, how large its parts may be, and that a class name stands for one class."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("sim", "real", "scenarios", "reports", "twinstep")

# Room -> what its files may import of the other rooms and of the packages that mark a world.
ALLOWED = {
    "scenarios": {"scenarios", "torch"},
    "sim": {"sim", "scenarios", "torch"},
    "real": {"real", "scenarios", "torch"},
    "reports": {
        "reports",
        "scenarios.given_file",
        "scenarios.interruption",
        "scenarios.owned_folder",
        "scenarios.progress_line",
        "scenarios.seam.memory",
        "scenarios.seam.roles",
        "scenarios.seam.steady_steps",
        "scenarios.seam.trace",
        "scenarios.seam.traits",
        "scenarios.sharding_kind",
        "scenarios.toml_writer",
        "pandas",
        "pyarrow",
    },  # the first four and `sharding_kind` need no more than the standard library and rich
    "twinstep": {"twinstep", "sim", "real", "scenarios", "reports", "torch", "pandas"},  # the use cases: all know them
}
WATCHED = (*ROOMS, "torch", "simpy", "pandas", "pyarrow")

# What begins a use case: nothing of the roof but the doors of the rooms below it.
DOORS = {f"{room}/__main__.py": {"twinstep"} for room in ROOMS}

# The only other places that cross.
CROSSINGS = {
    "reports/user_keys.py": {"scenarios.config.overrides"},
    "reports/kineto/calls.py": {"scenarios.kernel_tables.traced"},
    "reports/trace_table.py": {"scenarios.kernel_tables", "scenarios.seam.operations.as_json"},
    "sim/clock.py": {"simpy"},
    "sim/job/play.py": {"simpy"},
    "scenarios/config/toml/table_file/read.py": {"pyarrow"},
    "scenarios/kernel_tables/file.py": {"pyarrow"},
    "sim/operators/tables/about.py": {"pyarrow"},
    "sim/operators/tables/table.py": {"pyarrow"},
    "sim/operators/tables/wheel.py": {"pyarrow"},
    "sim/operators/tables/read.py": {"pyarrow", "reports.trace_table", "reports.errors"},
    "sim/operators/tables/__main__.py": {"pyarrow"},
    "sim/operators/tables/making.py": {"pandas", "pyarrow"},
}


MOST_FILES, MOST_LINES, MOST_LINES_OF_A_FUNCTION = 15, 400, 50

# Names of two classes each. It only shrinks.
TWICE = {"PowerSGDState"}  # torch's name, of both the state and its form for hooks


def room_files() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


@dataclass
class Source:
    """Full dotted names of what a file imports, at its top or inside a function; its classes and long functions."""

    imports: set[str] = field(default_factory=set)
    classes: list[str] = field(default_factory=list)
    long: dict[str, int] = field(default_factory=dict)


@cache
def read(path: Path) -> Source:
    found = Source()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found.imports |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.ClassDef):
            found.classes.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > MOST_LINES_OF_A_FUNCTION:
                found.long[node.name] = count
    return found


def allow(name: str, rules: set[str]) -> bool:
    return any(name == rule or name.startswith(f"{rule}.") or rule.startswith(f"{name}.") for rule in rules)


def test_a_file_imports_only_what_its_room_may_know() -> None:
    foreign = {}
    for path in room_files():
        place = str(path.relative_to(ROOT))
        rules = ALLOWED[place.split("/", maxsplit=1)[0]] | CROSSINGS.get(place, set()) | DOORS.get(place, set())
        foreign[place] = {
            name for name in read(path).imports if name.split(".")[0] in WATCHED and not allow(name, rules)
        }
    assert {place: names for place, names in foreign.items() if names} == {}


@pytest.mark.parametrize(
    "rooms",
    [
        {
            "twinstep": ("torch", "simpy", "pandas", "pydantic", "rich", "argparse", "importlib.metadata"),
            "scenarios.config.load": ("torch", "simpy", "pandas"),
            "twinstep.prediction": ("torch", "simpy", "pandas", "distributed"),
            "reports": ("torch", "simpy"),
            "reports.store.run_folder": ("torch", "simpy"),
            "reports.study.frame": ("torch", "simpy", "distributed"),
        },
        {
            "real.rank.run": ("simpy", "pandas"),
            "sim.run": ("pandas",),
            "scenarios.workloads.dlrm.program": ("fbgemm_gpu", "numba"),
        },
    ],
)
def test_importing_a_room_does_not_load(rooms: dict[str, tuple[str, ...]]) -> None:
    """One process imports room after room."""
    code = (
        "import importlib, sys\n"
        f"for room, absent in {rooms!r}.items():\n"
        "    importlib.import_module(room)\n"
        "    print(*(f'{room} loads {name}' for name in absent if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# Modules that close a circle of imports: a run shows itself, and a module of anyone's own makes its replicas.
CIRCULAR = {"reports.run", "scenarios.modules.module"}


def test_modules_import_each_other_in_no_further_circle() -> None:
    """Imports inside functions, and those for types alone, count."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in room_files()
    }
    known = {}
    for module, path in files.items():
        named = read(path).imports & files.keys()
        known[module] = {name for name in named if not any(other.startswith(f"{name}.") for other in named)} - {module}
    for module in CIRCULAR:
        del known[module]
    TopologicalSorter({module: names - CIRCULAR for module, names in known.items()}).prepare()  # names a circle


def test_a_package_has_few_files() -> None:
    files = Counter(path.parent for path in room_files() if path.name not in ("__init__.py", "__main__.py"))
    assert {str(folder.relative_to(ROOT)): count for folder, count in files.items() if count > MOST_FILES} == {}


def test_a_file_has_few_lines_and_so_has_a_function() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in room_files()}
    assert {place: count for place, count in lines.items() if count > MOST_LINES} == {}
    assert {str(path.relative_to(ROOT)): read(path).long for path in room_files() if read(path).long} == {}


def test_a_class_name_stands_for_one_class() -> None:
    places = defaultdict(set)
    for path in room_files():
        for name in read(path).classes:
            places[name].add(path)
    assert {name: found for name, found in places.items() if len(found) > 1}.keys() == TWICE
