"""Ends real runs at random: a rank is killed, stopped or told to raise, anywhere in any step; what comes of it?

    python -m tests.real.endings --trials 200 --seed 0

plays them and says what did not hold: that one sentence names the rank and its step, that the run ends within its
time-out, that no process and no spool is left, and that what was measured is kept.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import psutil
import torch

import real.launch.worker  # noqa: F401  (what a rank loads)
from real.launch.job import Check, Job
from real.launch.launcher import RunEnded, launch, spool_folder
from real.supervise.rank_status import where
from reports.store import run_folder as store
from scenarios.config.scenario import Scenario
from scenarios.seam.kernel import Kernel
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from tests.contract.scripts import Script
from tests.contract.worlds import scenario

STEPS = 5
TIMEOUT_S = 5.0
# From the time-out, or the fault, to the end: second-hand news, ranks that are told to go, merging on a busy machine.
ENDING_S = 10.0
KINDS = ("kill", "stop", "raise")
PLACES = (
    "before the step",
    "first",
    "after a reduction",
    "in flight",
    "in a kernel",
    "a message",
    "on a stream",
    "last",
)
KERNEL = Kernel(kind="elementwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run and its fault; `step` and `place` are where, `check` is the run's."""

    kind: str
    rank: int
    step: int
    place: str
    ranks: int
    check: Check

    @property
    def entered_step(self) -> int | None:
        """The step that the rank has entered last."""
        step = self.step - (self.place == PLACES[0])
        return step if step >= 0 else None


def trial(seed: int, number: int) -> Trial:
    """Draw a trial."""
    draw = random.Random(f"{seed}/{number}")
    ranks = draw.choice((2, 2, 3, 4))
    return Trial(
        kind=draw.choice(KINDS),
        rank=draw.randrange(ranks),
        step=draw.randrange(STEPS),
        place=draw.choice(PLACES),
        ranks=ranks,
        check=draw.choice(get_args(Check)),
    )


def program(scenario: Scenario, given: dict[str, Any], struck: Path) -> Program:
    """Make the program of a trial, for `Job.program`; `struck` is a file that is written when the fault comes."""
    return Script(_plays, (Trial(**given), struck))


async def _plays(rank: Rank, given: Trial, struck: Path) -> None:
    def at(place: str) -> None:
        if (rank.rank, index, place) == (given.rank, given.step, given.place):
            _strike(given.kind, struck)

    async def beside() -> None:
        at("on a stream")
        await stream.compute(KERNEL, time.sleep, 0.001, label="beside")

    stream = rank.stream("side")
    right, left = (rank.rank + 1) % rank.world_size, (rank.rank - 1) % rank.world_size
    for index in range(STEPS):
        at("before the step")
        with rank.step(index):
            at("first")
            spawned = stream.spawn(beside())
            await rank.all_reduce(torch.ones(64), label="gradients")
            at("after a reduction")
            exchanged = rank.all_to_all_single(torch.empty(rank.world_size), torch.ones(rank.world_size), label="ids")
            at("in flight")
            await rank.compute(KERNEL, at, "in a kernel", label="work")
            await exchanged
            sent = rank.send(torch.ones(8), right, label="right")
            at("a message")
            await rank.recv(torch.empty(8), left, label="left")
            await sent
            await spawned
            rank.record("index", index)
            at("last")


def _strike(kind: str, struck: Path) -> None:
    struck.write_text(str(time.monotonic()))
    if kind == "raise":
        raise RuntimeError("told to")
    os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def play(given: Trial, folder: Path, *, timeout_s: float = TIMEOUT_S) -> tuple[str, float, list[str]]:
    """The sentence with which the trial ended, how long after the fault, and what did not hold."""
    out, struck = folder / "run", folder / "struck"
    job = Job(
        scenario=scenario(1, given.ranks, name="trial", timeout_s=timeout_s),
        program="tests.real.endings:program",
        arguments=(asdict(given), struck),
        writer="reports.writer:write",
        out=out,
        spool=spool_folder(out),
        started="2026-01-01T00:00:00+00:00",
        check=given.check,
    )
    before = set(psutil.Process().children(recursive=True))
    try:
        launch(job)
    except RunEnded as ended:
        elapsed_s = time.monotonic() - float(struck.read_text()) if struck.exists() else float("nan")
        left = set(psutil.Process().children(recursive=True)) - before
        wrong = [*_wrong_words(given, str(ended)), *_lose(given, out, str(ended))]
        wrong += [f"left: {left}"] if left else []
        wrong += [f"left: {names}"] if (names := sorted(set(os.listdir(folder)) - {"run", "struck"})) else []
        return str(ended), elapsed_s, wrong
    return "", float("nan"), ["the run ended as if nothing had happened"]


def _wrong_words(given: Trial, sentence: str) -> Iterator[str]:
    named, step = f"rank {given.rank}", where(given.entered_step)
    starts = {
        "kill": (f"{named} was killed by SIGKILL {step}",),
        "raise": (f"{named} raised RuntimeError {step}: told to",),
        "stop": (f"{named} did not reach ", f"{named} did not move "),
    }
    if not sentence.startswith(starts[given.kind]) or step not in sentence or "\n" in sentence:
        yield f"expected {' or '.join(map(repr, starts[given.kind]))} ... {step}, got {sentence!r}"


def _lose(given: Trial, out: Path, sentence: str) -> Iterator[str]:
    """The rank keeps all steps before its last, the others all but one of these, as they may be behind."""
    run = store.load(out)
    if (run.info.complete, run.info.error) != (False, sentence):
        yield f"run.json: complete = {run.info.complete}, error = {run.info.error!r}"
    own = run.spans[run.spans["kind"] == "step"]
    for rank in range(given.ranks):
        kept = own.loc[own["rank"] == rank, "step"].tolist()
        least = given.step - (rank != given.rank)
        if kept != list(range(len(kept))) or len(kept) < least:
            yield f"rank {rank}: steps {kept} are kept, expected at least {least}"


def main() -> int:
    """Play trials; 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.endings", description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    options = parser.parse_args()
    kinds, held, longest_s = Counter[str](), Counter[str](), 0.0
    for number in range(options.first, options.first + options.trials):
        given = trial(options.seed, number)
        with tempfile.TemporaryDirectory(prefix="twinstep-trial-") as folder:
            sentence, elapsed_s, wrong = play(given, Path(folder))
        late = elapsed_s > ENDING_S + (TIMEOUT_S if given.kind == "stop" else 0.0)
        wrong += [f"it took {elapsed_s:.1f} s"] if late else []
        longest_s = max(longest_s, elapsed_s)
        kinds[given.kind] += 1
        held[given.kind] += not wrong
        if wrong:
            print(f"trial {number}: {asdict(given)}: {sentence!r}", *wrong, sep="\n    ", flush=True)
    print(", ".join(f"{kind}: {held[kind]} of {kinds[kind]} held" for kind in KINDS), f"longest end {longest_s:.1f} s")
    return int(sum(held.values()) < options.trials)


if __name__ == "__main__":
    sys.exit(main())
