"""Damaged run folders, traces, logs, recordings and plans: bytes gone wrong, values at their ends, files that are gone.

    python -m tests.generated.damaged --count 300 --seed 0

gives each to the commands that read it and prints what must not happen: anything but a result without warnings, or
mistakes of one sentence each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports import writer
from tests.commands import command
from tests.generated.toml import paths, put
from tests.reports.recordings import by_hand, with_loads

DATA = Path(__file__).parents[1] / "data"
ON_GPUS = ("--hosts", 1, "--gpus-per-host", 2, "--profile", "dgx_h100", "--steps", 2)
SCRIPT = Path(__file__).parents[2] / "examples" / "scripts" / "transformer_fsdp2.py"
_INTS = (0, 1, -1, -2, 2, 7, 1000, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 1e-300, 1e308, -1e308, float("nan"), float("inf"), float("-inf"))
_TEXTS = ("", " ", "\0", "\ud800", "é\u2028", "a" * 3000, "<script>", "[/red]", "step", "compute", "1e999")
_WORDS = (*_TEXTS, *_INTS, *_FLOATS, 2**64, 10**400, 10**4000, None, True, [], {}, [[]], {"a": 1})


def damaged_bytes(data: bytes, draw: random.Random) -> bytes:
    """Return a file's bytes with a few of them changed, left out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at, size = draw.randrange(len(found) + 1), draw.choice((1, 1, 4, 64))
        how = draw.randrange(5)
        if how <= 1 and at < len(found):
            found[at] ^= 1 << draw.randrange(8)
        elif how == 2:
            del found[at : at + size]
        elif how == 3:
            found[at:at] = found[at : at + size]
        elif how == 4 and draw.random() < 0.3:
            del found[at:]
    return bytes(found)


def damaged_tree(tree: Any, draw: random.Random) -> bytes:
    """JSON with a few values exchanged."""
    made = json.loads(json.dumps(tree))
    for _ in range(draw.randint(1, 3)):
        where, _ = draw.choice(list(paths(made)))
        put(made, where, draw.choice(_WORDS))
    return json.dumps(made).encode()


def damage_cell(path: Path, draw: random.Random) -> None:
    """Exchange a value of a table, as a release with a mistake might have written it."""
    table = pq.read_table(path)
    if not len(table):
        return
    name, row = draw.choice(table.schema.names), draw.randrange(len(table))
    kind = table.schema.field(name).type
    values = table[name].to_pylist()
    texts = [text for text in _TEXTS if text != "\ud800"]
    values[row] = draw.choice(_INTS if pa.types.is_integer(kind) else _FLOATS if pa.types.is_floating(kind) else texts)
    column = pa.array(values, kind)
    pq.write_table(table.set_column(table.schema.get_field_index(name), table.schema.field(name), column), path)


def damage_run(folder: Path, draw: random.Random) -> None:
    """Make one or two mistakes in a run folder."""
    for _ in range(2 if draw.random() < 0.3 else 1):
        path = draw.choice(sorted(folder.iterdir()))
        if path.suffix == ".parquet" and draw.random() < 0.6:
            with suppress(pa.ArrowException, OSError):  # damaged before
                damage_cell(path, draw)
            return
        if path.name == "run.json" and draw.random() < 0.6:
            with suppress(ValueError):
                path.write_bytes(damaged_tree(json.loads(path.read_bytes()), draw))
            return
        if draw.random() < 0.1:
            path.unlink()
        else:
            path.write_bytes(damaged_bytes(path.read_bytes(), draw))


def complaint(room: str, *words: object) -> str:
    """Return what a command should not have done: a traceback, a warning, a mistake without a sentence; "" if all is
    well.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            done = command(room, *words)
        except Exception:
            return traceback.format_exc()
    if warned:
        return f"{warned[0].filename}:{warned[0].lineno}: {warned[0].category.__name__}: {warned[0].message}"
    is_said = done.returncode in (1, 2) and done.stderr.strip() and "Traceback" not in done.stderr
    return "" if done.returncode == 0 or is_said else f"{done}"


def runs(folder: Path, draw: random.Random) -> Iterator[str]:
    """Yield what is wrong with how a damaged run folder is read."""
    shutil.copytree(draw.choice(bases(folder.parent)), folder)
    damage_run(folder, draw)
    yield complaint("reports", "show", folder)
    yield complaint("reports", "export", folder, "--csv", folder.with_name("csv"))
    if draw.random() < 0.1:
        yield complaint("reports", folder)


def bases(parent: Path) -> list[Path]:
    """Run folders that are whole."""
    found = [parent / "by_hand", parent / "with_loads"]
    if not found[0].exists():
        writer.write(by_hand(), found[0])
        writer.write(with_loads(by_hand()), found[1])
    return found


def traces(folder: Path, draw: random.Random) -> Iterator[str]:
    """Yield what is wrong with how a damaged trace of a profiler is read."""
    base = draw.choice(sorted((DATA / "kineto").glob("*.json*")))
    path = folder.with_suffix(".json.gz" if base.suffix == ".gz" else ".json")
    is_tree = base.suffix == ".json" and draw.random() < 0.7
    path.write_bytes(
        damaged_tree(json.loads(base.read_bytes()), draw) if is_tree else damaged_bytes(base.read_bytes(), draw)
    )
    yield complaint("reports", "kineto", path, "--out", folder)
    if folder.exists():
        yield complaint("reports", "show", folder)


def logs(folder: Path, draw: random.Random) -> Iterator[str]:
    """Yield what is wrong with how damaged output of nccl-tests is read."""
    base = draw.choice([path for path in sorted((DATA / "nccl_tests").rglob("*")) if path.is_file()])
    path = folder.with_suffix(base.suffix)
    path.write_bytes(damaged_bytes(base.read_bytes(), draw))
    yield complaint("reports", "published", path, "--json")


def recordings(
    folder: Path, draw: random.Random, profile: str = "dgx_h100", words: Sequence[object] = (*ON_GPUS, SCRIPT)
) -> Iterator[str]:
    """Say what is wrong with how a damaged recording, by default of a script, is played; `words` make a whole one."""
    base = folder.with_name("recorded")
    if not base.exists():
        assert command("sim", "--quiet", "--out", base, *words).returncode == 0
    whole = gzip.decompress((base / "recording.json.gz").read_bytes())
    if draw.random() < 0.2:
        data = damaged_bytes(gzip.compress(whole), draw)
    else:
        data = gzip.compress(damaged_tree(json.loads(whole), draw))
    folder.mkdir()
    (folder / "recording.json.gz").write_bytes(data)
    yield complaint("sim", folder, "--profile", profile, "--quiet", "--out", folder.with_name(f"{folder.name}-run"))


def plans(folder: Path, draw: random.Random) -> Iterator[str]:
    """Say what is wrong with how a damaged plan of TorchRec's is read."""
    base = folder.with_name("plan.json")
    if not base.exists():
        assert command("scenarios", "plan", "twrw_2x2", "--out", base).returncode == 0
    folder.mkdir()
    whole = base.read_bytes()
    data = damaged_bytes(whole, draw) if draw.random() < 0.2 else damaged_tree(json.loads(whole), draw)
    (folder / "plan.json").write_bytes(data)
    (folder / "planned.toml").write_text('include = "twrw_2x2"\nsharding = {plan = "plan.json"}\n')
    yield complaint("scenarios", "check", folder / "planned.toml")


KINDS: dict[str, Callable[[Path, random.Random], Iterator[str]]] = {
    "run": runs,
    "trace": traces,
    "log": logs,
    "recording": recordings,
    "program": partial(recordings, profile="cpu_local", words=("twrw_2x2", "--record")),
    "plan": plans,
}


def main() -> int:
    """Try damaged files; 1 if one of them was not read as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.generated.damaged", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    wrong = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kind or KINDS:
            for number in range(options.count):
                draw = random.Random(f"{options.seed}/{kind}/{number}")
                for said in filter(None, KINDS[kind](Path(folder, f"{kind}-{number}"), draw)):
                    wrong[kind] += 1
                    print(f"{kind} {number}: {said}", flush=True)
                shutil.rmtree(Path(folder, "csv"), ignore_errors=True)
            print(f"{kind}: {wrong[kind]} of {options.count} were not read as they should be", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
