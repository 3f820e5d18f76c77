"""Scenario files that went wrong: ready ones with a few values exchanged, dropped or taken to their ends.

    python -m tests.generated.mutants --count 300 --seed 0

gives each to `check`, simulates what that accepts, each in a process of its own, and prints what must not happen: a
traceback, a run that is killed or takes over 60 s of processor time without a word, and a file that is accepted and
then refused.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.config.catalogue import library_files, profile_names
from scenarios.config.toml.include import read_profile_tree, read_tree
from tests.generated.toml import QUANTITY, drop, paths, put, scale, toml_file

# Processor time of a process, and time by the clock: a busy machine is no hang.
MOST_S, MOST_CLOCK_S = 60, 900
_ENDINGS = {1: "accepted, then ends with an error", 2: "accepted, then refused"}
_NUMBERS = (0, 1, -1, 2, 3, 5, 7, 100, 1000, 10**6, 10**9, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63))
_FACTORS = (2, 3, 10, 1000, 0.5, 0.1)
_FLOATS = (0.0, -0.0, 1e-12, 0.3, 1.0, 1.5, 1e9, 1e308, float("nan"), float("inf"))
_TEXTS = ("", " ", "é\u2028", "a" * 300, "0", "-1", "1 B", "0 ns", "1 ns", "1 h", "1 B/s", "1 EB/s", "1 FLOP", "1 EiB")
_ADDED: tuple[tuple[str, Any], ...] = (
    *(("include", one) for one in ({}, [{}], "", "none.toml", ["twrw_2x2", 1])),
    *(("set", {key: one}) for key in ("include", "measured", "cluster", "run") for one in ({}, [{}], 1)),
    *(("measured", one) for one in ({}, {"groups": [{}]}, 1)),
    *(("rows", one) for one in (1, 2, 3, 2**40)),
    *(("data", {"samples_per_s": 1e6, "prefetch": one}) for one in (1, 10_000, 10_001)),
    *(("data", one) for one in ({}, {"copies": True}, {"samples_per_s": 1e-9}, {"samples_per_s": 1e300})),
    *(("run.payload", one) for one in ("values", "sizes")),
    *(("model.optimizer", {"kind": one}) for one in ("adam", "lamb", "partial_rowwise_adam", "partial_rowwise_lamb")),
    *(("model.dense_optimizer", {"kind": one}) for one in ("Adam", "SGD", "LBFGS", "none")),
    *(("sharding.plan", one) for one in ("none.json", "", ".")),
    *(("run.steps", one) for one in (10**9, 10**4000)),
    ("run.compute_times", "."),
)
_SAID = re.compile(r"takes? about")


class Mutants:
    """An endless series of mutated scenarios; a seed always gives the same one."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._bases = [whole(path) for path in library_files()]
        self._profiles = [read_profile_tree(name).tree.values for name in profile_names()]
        self._words = sorted({leaf for one in (*self._bases, *self._profiles) for leaf in _texts(one)})

    def __iter__(self) -> Iterator[str]:
        while True:
            made = json.loads(json.dumps(self._random.choice(self._bases)))
            for _ in range(self._random.randint(1, 3)):
                self._mutate(made)
            yield toml_file(made)

    def _mutate(self, made: dict[str, Any]) -> None:
        draw = self._random
        if draw.random() < 0.1:
            self._add(made)
            return
        if draw.random() < 0.3:  # a key of the hardware, which most scenarios leave to a profile
            where, value = draw.choice(list(paths(draw.choice(self._profiles))))
            put(made, where, self._other(value))
            return
        places = list(paths(made))
        leaves = [one for one in places if not isinstance(one[1], (dict, list))]
        where, value = draw.choice(places if draw.random() < 0.1 else leaves)
        if draw.random() < 0.1:
            drop(made, where)
        else:
            put(made, where, self._other(value))

    def _add(self, made: dict[str, Any]) -> None:
        """Add what ready scenarios lack: keys of files alone, values over others, loaders far ahead, tiny tables."""
        draw = self._random
        key, value = draw.choice(_ADDED)
        if key == "rows":
            for table in made.get("model", {}).get("tables", ()):
                table["rows"] = value
        else:
            put(made, tuple(key.split(".")), json.loads(json.dumps(value)))

    def _other(self, value: Any) -> Any:
        draw = self._random
        if draw.random() < 0.05:
            return draw.choice((*_NUMBERS, *_FLOATS, *_TEXTS, True, [], {}, [1, "a"], {"mean": 2.5}))
        others: list[Any] = [{}, [value], 1]
        match value:
            case bool():
                others = [not value]
            case int():
                others = [*_NUMBERS, *(int(value * factor) for factor in 3 * _FACTORS)]
            case float():
                others = [*_FLOATS, *(value * factor for factor in 2 * _FACTORS)]
            case str() if QUANTITY.fullmatch(value):
                others = [scale(value, factor) for factor in (*_FACTORS, *_FACTORS, 1e-6, 1e6, 1e-9, 1e9, 0)]
            case str():
                others = [*self._words, *_TEXTS]
            case list():
                others = [value[:1], value * 2, value[::-1], []]
        return draw.choice(others)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended: its exit code, or a signal as a negative number; None: not within the limits."""

    code: int | None
    said: str
    seconds: float
    peak_bytes: int

    @property
    def wrong(self) -> str:
        """What must not happen, in a word; "" where all is well."""
        if self.code is None:
            return "" if _SAID.search(self.said) else "hangs"
        if self.code < 0:
            return "killed"
        if "Traceback" in self.said or "Warning:" in self.said:
            return "traceback"
        return "" if self.code == 0 or self.said.strip() else "silent"


def run(command: Callable[[], int]) -> Ended:
    """Run the command in a fork of this process, which has imported all that is slow to import."""
    with tempfile.TemporaryFile() as output:
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = 70
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S))
            try:
                code = command()
            except SystemExit as ending:
                code = ending.code if isinstance(ending.code, int) else 1
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        status, used = _wait(child, begun + MOST_CLOCK_S)
        output.seek(0)
        said = output.read().decode(errors="replace")
        ended = None if status is None else os.waitstatus_to_exitcode(status)
        if ended in (-signal.SIGXCPU, -signal.SIGKILL) and used.ru_utime + used.ru_stime > MOST_S - 1:
            ended = None
        return Ended(ended, said, time.monotonic() - begun, used.ru_maxrss << 10)


def _wait(child: int, until: float) -> tuple[int | None, resource.struct_rusage]:
    while time.monotonic() < until:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return status, used
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return None, os.wait4(child, 0)[2]


def try_file(file: Path) -> tuple[str, Ended, Ended | None]:
    """Return what is wrong with how `check` and `sim` take the file ("" if nothing), and how each ended."""
    from twinstep.prediction import main as sim  # noqa: PLC0415 - imports torch
    from twinstep.scenario_files import main as check  # noqa: PLC0415 - imports torch

    checked = run(lambda: check(["check", str(file)]))
    if checked.wrong or checked.code != 0:
        return (f"check: {checked.wrong}" if checked.wrong else "", checked, None)
    simulated = run(lambda: sim([str(file), "--quiet", "--out", str(file.with_suffix(""))]))
    if not simulated.wrong and simulated.code in _ENDINGS:
        return _ENDINGS[simulated.code], checked, simulated
    return (f"sim: {simulated.wrong}" if simulated.wrong else "", checked, simulated)


def main(arguments: list[str] | None = None) -> int:
    """Try as many files as are asked for. Exit code 1: something happened that must not."""
    parser = argparse.ArgumentParser(prog="python -m tests.generated.mutants")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the files stay on which something went wrong")
    options = parser.parse_args(arguments)
    import sim.run  # noqa: F401, PLC0415 - once, not in each fork

    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number, (text, _) in enumerate(zip(Mutants(options.seed), range(options.count), strict=False)):
            file = Path(folder) / f"mutant_{number}.toml"
            file.write_text(text)
            wrong, checked, simulated = try_file(file)
            last = simulated or checked
            counts[wrong or ("refused by check" if simulated is None else f"simulated, exit code {last.code}")] += 1
            if wrong:
                print(f"{number}: {wrong} ({last.seconds:.1f} s, {last.peak_bytes >> 20} MiB)\n{last.said[-1500:]}")
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / file.name).write_text(text)
            sys.stdout.flush()
    for name, count in sorted(counts.items()):
        print(f"{count:5d} {name}")
    fine = all(name.startswith(("refused", "simulated")) for name in counts)
    return 0 if fine else 1


def whole(path: Path) -> dict[str, Any]:
    """Return a scenario with what it includes and all that its profile says; the files that it names have absolute
    paths.
    """
    values = {key: value for key, value in read_tree(str(path)).tree.values.items() if key != "measured"}
    return json.loads(json.dumps(values).replace('"twrw_f2.csv"', json.dumps(str(path.parent / "twrw_f2.csv"))))


def _texts(tree: Any) -> Iterator[str]:
    return (value for _, value in paths(tree) if isinstance(value, str) and len(value) < 60)


if __name__ == "__main__":
    sys.exit(main())
