"""The keys of each command's `--json`, with the kinds of their values: what others' programs read.

`python -m tests.json_keys --write` writes `data/json_keys/COMMAND.txt` anew; a test compares. A key that goes or
changes its kind is one that users notice, and has a line in CHANGELOG.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.commands import command

FOLDER = Path(__file__).parent / "data" / "json_keys"
SMALL = "all_reduce_4x1_200mbit"
_DATA = Path(__file__).parent / "data"
_STUDY = f"""
scenario = "{SMALL}"
[vary]
"cluster.nic.latency" = ["1 us", "50 us"]
"""
# Command -> the words behind `python -m`; RUN, STUDY and NEW are paths of the test's own.
COMMANDS: dict[str, tuple[str, ...]] = {
    "sim": ("sim", "criteo_small_2x2", "--steps", "2", "--out", "NEW"),
    "sim_what_if": ("sim", SMALL, "--steps", "2", "--what-if", "--out", "NEW"),
    "twinstep_plan": ("twinstep", "plan", "criteo_small_2x2", "--steps", "2", "--out", "NEW"),
    "sim_sweep": ("sim", "sweep", "STUDY", "--jobs", "1", "--out", "NEW"),
    "sim_search": ("sim", "search", "STUDY", "--trials", "2", "--jobs", "1", "--out", "NEW"),
    "sim_curves": (
        "sim",
        "curves",
        SMALL,
        "--only",
        "scaling",
        "--hosts",
        "2",
        "--jobs",
        "1",
        "--out",
        "NEW",
    ),
    "reports": ("reports", "RUN"),
    "reports_side_by_side": ("reports", "RUN", str(_DATA / "old_runs" / "2026_11_27")),
    "reports_published": ("reports", "published", str(_DATA / "published" / "collectives.csv")),
    "real": ("real", SMALL, "--steps", "2", "--out", "NEW"),
    "real_validate": ("real", "validate", SMALL, "--steps", "2", "--out", "NEW"),
    "real_regret": ("real", "regret", "STUDY", "--out", "NEW"),
    "reports_compare": ("reports", "compare", "RUN", "MEASURED"),
}


def made_by(name: str, folder: Path) -> str:
    """Return the keys that a command's JSON has, one a line; files are written into `folder`."""
    study = folder / "study.toml"
    study.write_text(_STUDY)
    places = {"STUDY": study, "NEW": folder / "new", "RUN": folder / "run", "MEASURED": folder / "measured"}
    words = COMMANDS[name]
    for place, room in (("RUN", "sim"), ("MEASURED", "real")):
        if place in words:
            done = command(room, SMALL, "--steps", "2", "--quiet", "--out", places[place])
            assert done.returncode == 0, done.stderr
    done = command(*(str(places.get(word, word)) for word in words), "--json")
    assert done.returncode == 0, done.stderr
    return "".join(f"{line}\n" for line in sorted(set(_keys("", json.loads(done.stdout)))))


def _keys(path: str, value: object) -> Iterator[str]:
    """Yield a line for each value below a path: elements of a list share theirs."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _keys(f"{path}.{key}".lstrip("."), each)
    elif isinstance(value, list) and value:
        for each in value:
            yield from _keys(f"{path}[]", each)
    else:
        kind = {type(None): "null", int: "number", float: "number", str: "text", bool: "true or false"}
        yield f"{path}: {kind.get(type(value), 'nothing')}"


if __name__ == "__main__" and "--write" in sys.argv:
    FOLDER.mkdir(exist_ok=True)
    for each in COMMANDS:
        with tempfile.TemporaryDirectory() as place:
            (FOLDER / f"{each}.txt").write_text(made_by(each, Path(place)))
