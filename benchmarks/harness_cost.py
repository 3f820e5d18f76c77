"""`python -m benchmarks.harness_cost`: what measuring a script adds to its host's time of a step.

    python -m benchmarks.harness_cost                 # by `python -m real` over gloo, without and with module labels
    python -m benchmarks.harness_cost --rounds 9
    python -m benchmarks.harness_cost --clock cpu     # the script's own thread, on a machine that others use, too

`data/harness_steps.py` runs plainly and watched, in turn; of its steps the first half is recorded and the other timed
with the recording off. "gloo" is the whole of `python -m real`. "as on a GPU" is the
process of a script alone, on the path that CUDA takes: torch's backend "fake", which does nothing, is in NCCL's place,
and functions of `torch.cuda` are stubs that keep the host as long as `STUBS_US` says. The cost of real CUDA calls
differs; how many there are does not. Two processes differ by more than 100 us a step, as "plain again" shows beside the
rest: so of what is left with the recording off there is a table of its own, of steps that the script takes in turn with
it and with torch alone, in one process (`harness_turns.py`).

"in turn" is what the recording's being off leaves of the watching, in one process: blocks of calls of torch's own group
and of one that hands them on, from Python and from C++, and ends of steps; the quickest decile of blocks, which a busy
machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # has torch know backend "fake"
from torch._C._distributed_c10d import FakeProcessGroup, _register_process_group

from benchmarks import harness_turns
from real.rank.journal import Journal
from real.rank.lanes import StreamLane
from real.script import link
from real.script.process_group import WatchedGroup
from real.script.unrecorded import SETTLING, UnrecordedSteps
from scenarios.workloads.script.config import Script
from scenarios.workloads.script.process import groups

SCRIPT = Path(__file__).parent / "data" / "harness_steps.py"
STEPS = 200
# Of the script's steps behind its warm-up: `STEPS` recorded ones, some of neither kind, `STEPS` with the recording off.
_BETWEEN = SETTLING + 2
_ALL = 2 * STEPS + _BETWEEN
_HALVES = {"recorded": slice(0, STEPS), "recording off": slice(STEPS + _BETWEEN, _ALL)}
_WARM_UP = 10  # the script's own
_BLOCKS, _OF_A_BLOCK = 300, 200  # of calls in turn
_MANY = 10**6  # so that the script comes to its end
# What the host takes for a call, roughly those of a current server with torch's bindings; no more was measured.
STUBS_US = {"event": 0.8, "record": 1.5, "wait": 1.0, "query": 0.5, "current stream": 0.7, "stream": 3.0, "ns": 1.5}
PLAIN = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK"), "0"),
    **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS"), "1"),
    "MASTER_ADDR": "127.0.0.1",
}


def plain(backend: str, file: Path) -> None:
    """Run the script as torchrun does."""
    environment = {**os.environ, **PLAIN, "MASTER_PORT": free_port()}
    subprocess.run([sys.executable, SCRIPT, backend, str(_ALL), file], env=environment, check=True)


def measure(file: Path, modules: str) -> None:
    """Run it by `python -m real`."""
    with tempfile.TemporaryDirectory() as folder:
        given = f'program = "script"\n[run]\nsteps = {_WARM_UP + STEPS}\n[cluster]\nprofile = "cpu_local"\nhosts = 1\n'
        given += f"gpus_per_host = 1\n[script]\npath = {str(SCRIPT)!r}\nmodules = {modules}\n"
        given += f"unrecorded_steps = {_MANY}\n"
        given += f'args = ["gloo", "{_ALL}", {str(file)!r}]\n'
        scenario = Path(folder, "scenario.toml")
        scenario.write_text(given)
        command = [sys.executable, "-m", "real", "--quiet", "--out", Path(folder, "run"), scenario]
        subprocess.run(command, check=True, capture_output=True)


def as_on_gpu(file: Path) -> dict[str, Counter[str]]:
    """Run its process on the path that CUDA takes; return how often each stub was called in a step of each half."""
    start = multiprocessing.get_context("spawn")
    ours, others = start.Pipe()
    script = Script(path=SCRIPT, sha256="", args=("fake", str(_ALL), str(file)), is_cut=False, unrecorded_steps=_MANY)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # in which the script meets
    env = {**PLAIN, "MASTER_PORT": str(store.port)}
    given = (others, link.RankPlace(0, 0, 1, 1), _WARM_UP + STEPS, script, env)
    os.environ["OMP_NUM_THREADS"] = PLAIN["OMP_NUM_THREADS"]  # which torch reads as it is loaded
    process = start.Process(target=on_stubs, args=given, daemon=True)
    process.start()
    others.close()
    found: dict[str, Counter[str]] = {}
    while True:
        kind, argument = ours.recv()
        if kind == "ready":
            ours.send("begin")
        elif kind == "counted":
            found = argument
        elif kind == "error":
            raise RuntimeError(argument)
        elif kind == "end":
            break
    process.kill()
    process.join()
    return found


def on_stubs(connection: Connection, place: link.RankPlace, steps: int, script: Script, env: Mapping[str, str]) -> None:
    """Run a script's process with stubs for `torch.cuda`; send their calls a step at its end."""
    calls, of_half = Counter[str](), dict[str, Counter[str]]()

    def stub(name: str, value: Any = None) -> Callable[..., Any]:
        taken_ns = round(STUBS_US[name] * 1e3)

        def call(*_: Any, **__: Any) -> Any:
            until_ns = time.perf_counter_ns() + taken_ns
            calls[name] += 1
            while time.perf_counter_ns() < until_ns:
                pass
            return value

        return call

    class Event:
        __init__, record, query = stub("event"), stub("record"), stub("query", True)
        elapsed_time = stub("ns", 1.0)

    class Stream:
        stream_id = 0
        wait_event, synchronize = stub("wait"), stub("wait")

    stream, stop, leave = Stream(), link.WatchedLink._stop_recording, link.WatchedLink._leave
    turns = harness_turns.take

    def keep_counts(half: str, steps: int) -> None:
        of_half[half] = Counter({name: round(count / steps, 1) for name, count in calls.items()})
        calls.clear()

    def stop_counting(self: link.WatchedLink) -> None:
        keep_counts("recorded", _WARM_UP + STEPS)
        stop(self)
        calls.clear()

    def take(step: Callable[[Any], None]) -> Any:
        keep_counts("recording off", STEPS + _BETWEEN)
        return turns(step)

    def send_counts(self: link.WatchedLink, kind: str, argument: Any) -> None:
        self._send("counted", of_half)
        leave(self, kind, argument)

    @contextmanager
    def on_stream(_: Any) -> Any:
        stub("stream")()
        yield

    stubs = {
        "Event": Event,
        "Stream": lambda *_: stream,
        "current_stream": stub("current stream", stream),
        "stream": on_stream,
        "synchronize": lambda *_: None,
        "set_device": lambda *_: None,
        "current_device": lambda: 0,
        "is_available": lambda: True,
    }
    dist.ProcessGroup.BackendType.FAKE = dist.ProcessGroup.BackendType.CUSTOM  # type: ignore[attr-defined]
    with mock.patch.multiple(torch.cuda, **stubs):
        own = mock.patch.multiple(link.WatchedLink, _leave=send_counts, _stop_recording=stop_counting)
        known = mock.patch.object(groups, "_KNOWN", ("fake",))  # scripts are refused any other
        in_turn = mock.patch.object(harness_turns, "take", take)
        with mock.patch.object(WatchedGroup, "_make", _fake), own, known, in_turn:
            link.main(connection, place, steps, script, env)


def in_turn() -> None:
    """Print what a call takes of torch's own group and of one that hands it on, and what the end of a step takes."""
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=1)
    dist.ProcessGroup.BackendType.FAKE = dist.ProcessGroup.BackendType.CUSTOM  # type: ignore[attr-defined]
    journal, own, tensor = Journal(0, 0, 1), dist.group.WORLD, torch.zeros(256)
    options = SimpleNamespace(global_ranks_in_group=[], group_size=1, group_rank=0, store=dist.HashStore())
    with mock.patch.object(WatchedGroup, "_make", _fake):
        watched: Any = WatchedGroup(SimpleNamespace(journal=journal), None, None, options, {"cpu": "fake"})  # type: ignore[arg-type]
    watched.bypass()
    for name, group in (("own", own), ("handed on", watched)):
        _register_process_group(name, group)
    given, steps = dist.AllreduceOptions(), UnrecordedSteps(journal, StreamLane(), "main", 0, _MANY)

    def from_python(group: Any) -> None:
        group.allreduce([tensor], given)

    def from_cpp(name: str) -> None:
        torch.ops._c10d_functional.wait_tensor(torch.ops._c10d_functional.all_reduce_(tensor, "sum", name))

    blocks: dict[str, Callable[[], Any]] = {
        "a call from Python: torch's own group": lambda: from_python(own),
        "a call from Python: handed on": lambda: from_python(watched),
        "a call from C++: torch's own group": lambda: from_cpp("own"),
        "a call from C++: handed on": lambda: from_cpp("handed on"),
        "the end of a step, without its event": steps.end_step,
    }
    times_us: dict[str, list[float]] = {name: [] for name in blocks}
    for _ in range(_BLOCKS):
        for name, function in blocks.items():
            began_ns = time.perf_counter_ns()
            for _ in range(_OF_A_BLOCK):
                function()
            times_us[name].append((time.perf_counter_ns() - began_ns) / 1e3 / _OF_A_BLOCK)
        journal.take()
    for name, taken in times_us.items():
        print(f"{name}: {statistics.quantiles(taken, n=10)[0]:.2f} us")
    dist.destroy_process_group()


def _fake(self: WatchedGroup, name: str, options: Any) -> Any:
    return FakeProcessGroup._create_internal(self.rank(), self.size(), FakeProcessGroup.Options())


def free_port() -> str:
    """Return a port that nobody uses now."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    return str(store.port)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.harness_cost")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of all, or of the script's thread")
    parser.add_argument("--only", help="one of the ways, by name")
    options = parser.parse_args()
    rounds: int = options.rounds
    ways: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
        "gloo": (lambda file: plain("gloo", file), lambda file: measure(file, "false")),
        "gloo, module labels": (lambda file: plain("gloo", file), lambda file: measure(file, "true")),
        "as on a GPU": (lambda file: plain("fake", file), as_on_gpu),
    }
    if options.only in (None, "in turn"):
        in_turn()
    found: Any = None
    ways = {name: both for name, both in ways.items() if options.only in (None, name)}
    print(f"Host time ({options.clock}) of a step, {STEPS} steps of each kind a round, medians of {rounds} rounds")
    print("| way | steps | plain | measured | adds: quickest decile | median | mean |")
    print("|---|---|---|---|---|---|---|")
    turns: list[dict[str, list[float]]] = []
    for name, (own, watched) in ways.items():
        times: list[list[list[float]]] = []
        for _ in range(rounds):
            times.append([])
            for run in (own, own, watched):
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder, "times")
                    found = run(file)
                    taken = json.loads(file.read_text())
                times[-1].append(taken[options.clock])
                turns += [taken["turns"][options.clock]] if "turns" in taken else []
        print(f"| {name} | plain again | {' | '.join(_row([each[:2] for each in times]))} |")
        for half, steps in _HALVES.items():
            print(f"| {name} | {half} | {' | '.join(_row([[each[0][steps], each[2][steps]] for each in times]))} |")
        sys.stdout.flush()
    if turns:
        _print_turns(turns)
    if isinstance(found, dict):
        for half, counts in found.items():
            words = ", ".join(f"{count:g} {name}" for name, count in sorted(counts.items()))
            print(f"Calls of torch.cuda a step, {half}: {words}")


def _print_turns(rounds: list[dict[str, list[float]]]) -> None:
    """Print what turns take more than torch's own next to them, all rounds together, with the error of the median."""
    print("\nIn turn, as on a GPU: the median of what turns of 3 steps take more than those of torch's own beside them")
    print("| steps | adds | give or take |\n|---|---|---|")
    for way in (harness_turns.AGAIN, harness_turns.OFF):
        pairs = [zip(found[way], found[harness_turns.OWN], strict=True) for found in rounds]
        more = [one - own for each in pairs for one, own in each]
        low, _, high = statistics.quantiles(more, n=4)
        error = 1.25 * (high - low) / 1.35 / len(more) ** 0.5  # of a normal one's, from the middle half
        print(f"| {way} | {statistics.median(more):+.0f} us | {error:.0f} us |")


def _row(times: list[list[list[float]]]) -> list[str]:
    """Return the cells of rounds of plain and measured steps, in us."""
    averages = (lambda steps: statistics.quantiles(steps, n=10)[0], statistics.median, statistics.mean)
    adds = [statistics.median(average(ours) - average(own) for own, ours in times) for average in averages]
    both = [statistics.median(statistics.median(each[one]) for each in times) for one in (0, 1)]
    return [f"{each:.0f} us" for each in (*both, *adds)]


if __name__ == "__main__":
    main()
