"""Finds ready scenarios, hardware profiles and operator tables, in this package and in packages installed with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
# The profile that users copy to write their own; it describes no real machine.
TEMPLATE = "template"
# Prefix of the names of whole tables; the name of a system that aiconfigurator-core has measured follows.
WHOLE_TABLE = "aiconfigurator/"
# Suffixes of files of measured operators: tables, and traces of torch.profiler.
TABLE_FILES = (".parquet", ".json", ".json.gz")


def library_files() -> tuple[Path, ...]:
    """Return the files of the ready scenarios, sorted by name."""
    return tuple(sorted((_PACKAGE / "library").glob("*.toml")))


def scenario_file(path: str | os.PathLike[str]) -> str:
    """Return the file of a scenario given by its path or by the name of a ready one; an existing file takes precedence.

    A ready scenario's path is relative if the file lies below the working directory. If neither exists, `path` is
    returned unchanged, and its reader raises an error that quotes `expected_scenario`.
    """
    given = os.fspath(path)
    if os.path.isfile(given):
        return given
    ready = next((str(file) for file in library_files() if file.stem == given), None)
    if ready is None:
        return given
    relative = os.path.relpath(ready)
    return ready if relative.startswith(os.pardir) else relative


def expected_scenario(missing: str) -> str:
    """Return the end of an error message for a missing file: the names of similar, else of all, ready scenarios."""
    names = [file.stem for file in library_files()]
    path = Path(missing)
    near = get_close_matches(path.stem, names) if path.name == missing else []
    if near or (path.name == missing and not path.suffix):
        return (
            f"a scenario in TOML, or a ready one such as {', '.join(near)}"
            if near
            else f"a scenario in TOML, or one of the ready ones: {', '.join(names)}"
        )
    return "a scenario in TOML"


def expected_profile(given: str, names: Iterable[str]) -> str:
    """Return what a profile's name is expected to be: a name near the given one, else one of `names`, or a path."""
    known = list(names)
    near = get_close_matches(given, known)
    listed = f"a profile such as {', '.join(near)}" if near else f"one of {', '.join(known)}"
    return f"{listed}, or a path that ends in .toml"


def profile_files() -> tuple[Path, ...]:
    """Return the files of the ready hardware profiles, sorted by name."""
    return tuple(sorted((_PACKAGE / "profiles").glob("*.toml")))


def failure_profiles() -> tuple[Path, ...]:
    """Return the files of the ready failure profiles, sorted by name."""
    return tuple(sorted((_PACKAGE / "profiles" / "failures").glob("*.toml")))


def kernel_tables() -> tuple[Path, ...]:
    """Return the files of the ready tables of measured operators, sorted by name."""
    return tuple(sorted((_PACKAGE / "profiles" / "tables").glob("*.parquet")))


def whole_tables() -> Path | None:
    """Return the folder of the systems that aiconfigurator-core has measured; None if it is not installed.

    The package is not imported: only its data are read.
    """
    spec = find_spec("aiconfigurator_core")
    places = [] if spec is None else spec.submodule_search_locations or []
    return next((folder for place in places if (folder := Path(place, "systems", "data")).is_dir()), None)


def whole_table_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the tables below `whole_tables()`: those systems whose linear layers were measured."""
    return tuple(f"{WHOLE_TABLE}{found.parent.name}" for found in sorted(folder.glob("*/gemm")))


def kernel_table_file(name: str) -> Path:
    """Return the path of a table of measured operators: a ready table's file by its name, a whole table's folder, else
    `name` as a path.
    """
    if name.startswith(WHOLE_TABLE) and (folder := whole_tables()) is not None:
        return folder / name.removeprefix(WHOLE_TABLE)
    return next((file for file in kernel_tables() if file.stem == name), Path(name))


def profile_names() -> tuple[str, ...]:
    """Return the names that `cluster.profile` accepts."""
    return tuple(path.stem for path in profile_files())


def profile_file(name: str, files: Callable[[], Iterable[Path]] = profile_files) -> str | None:
    """Return the file of a ready profile, or None if none of `files` has that name."""
    return next((os.path.normpath(path) for path in files() if path.stem == name), None)
