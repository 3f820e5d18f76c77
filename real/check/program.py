"""Runs a check: rank 0 draws examples with Hypothesis, and all ranks run each of them in lockstep."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import hypothesis
import torch.distributed as dist

from real.check.cases.case import WORLD, Case, GroupSpec, RankGroups, play
from real.check.cases.error_classes import Bits
from real.check.falsify import DEFAULT_LIBRARY, SETTINGS, Property, World, command, compare
from real.check.strategies import PER_PLAY, PROPERTIES, PlayingRanks, several
from real.rank.drive import play as drive
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Host, Inside, Link, Network, Nics
from scenarios.config.scenario import RunSettings, Scenario
from scenarios.progress_line import ProgressLine
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording

Simulate = Callable[[Scenario, Program], Recording]

# Groups of drawn ranks, besides the world, the hosts and the same local ranks; NCCL keeps buffers for each.
_NEW_GROUPS = 4
_OUTCOME, _PLAYING = "outcome.json", "playing"
_DIFFERS = "   <-- differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A check's extent: `plays` examples of each property, or, where given, these `cases` and nothing else.

    `start` is the command line that starts these ranks, up to "check".
    """

    properties: tuple[str, ...]
    plays: int
    seed: int
    cases: tuple[Case, ...]
    start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyOutcome:
    """A result of one property, or of the given cases. `failure` says what differs and how to repeat it."""

    name: str
    plays: int
    cases: int
    failure: str | None
    tensors: tuple[str, ...] = ()


class CaseProgram(Program):
    """A program of cases; after a run, `returned` holds the tensors that each rank ended with, by case."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.returned: dict[int, list[list[Bits]]] = {}
        self._cases = tuple(cases)

    async def __call__(self, rank: Rank) -> None:
        self.returned[rank.rank] = await play(RankGroups(rank), self._cases)


class CheckProgram(Program):
    """The program of `python -m real check`; rank 0 writes its outcomes into the folder `out`."""

    def __init__(self, scenario: Scenario, options: Options, simulate: Simulate, out: Path) -> None:
        self._scenario, self._options, self._simulate, self._out = scenario, options, simulate, out
        self._repeat = partial(command, start=options.start, library=scenario.run.library)

    async def __call__(self, rank: Rank) -> None:
        warnings.simplefilter("ignore")  # drawn cases provoke warnings of torch and of the exchanges on purpose
        lockstep = _Lockstep(rank, self._is_about_to_play)
        if rank.rank != 0:
            lockstep.follow()
            return
        worlds = {"sim": simulated_world(self._simulate), "real": lockstep.lead}
        try:
            results = [self._play_given(worlds)] if self._options.cases else self._draw_outcomes(worlds)
        # The ranks are out of step: raise the play's error at once, without Hypothesis' shrinking.
        except _PlayFailedError as failed:
            raise failed.error from failed
        lockstep.end()
        (self._out / _OUTCOME).write_text(json.dumps([asdict(one) for one in results]))

    def _play_given(self, worlds: dict[str, World]) -> PropertyOutcome:
        cases = self._options.cases
        lines = [line for name, world in worlds.items() for line in _compare(name, world, cases)]
        return PropertyOutcome(
            name="the given cases",
            plays=1,
            cases=len(cases),
            failure="\n".join(line for line in lines if line.endswith(_DIFFERS)) or None,
            tensors=tuple(lines),
        )

    def _draw_outcomes(self, worlds: dict[str, World]) -> list[PropertyOutcome]:
        cluster, names = self._scenario.cluster, self._options.properties
        groups = session_groups(cluster.hosts, cluster.host.gpus, self._options.seed)
        ranks = PlayingRanks(cluster.hosts, cluster.host.gpus, groups)
        results = []
        with ProgressLine(quiet=False, ticks=True) as bar:
            for at, name in enumerate(names):
                bar.show(name, at, len(names))
                results.append(self._falsify(name, ranks, Property(worlds, self._repeat)))
        return results

    def _falsify(self, name: str, ranks: PlayingRanks, prop: Property) -> PropertyOutcome:
        @hypothesis.seed(self._options.seed)
        @hypothesis.settings(SETTINGS, max_examples=self._options.plays)
        @hypothesis.given(several(PROPERTIES[name](ranks), 1, PER_PLAY))
        def holds(cases: tuple[Case, ...]) -> None:
            prop.check(cases)

        failure = None
        try:
            holds()
        except AssertionError as error:
            failure = str(error)
        return PropertyOutcome(name=name, plays=prop.plays, cases=prop.cases, failure=failure)

    def _is_about_to_play(self, cases: Sequence[Case]) -> None:
        (self._out / _PLAYING).write_text(self._repeat(tuple(cases)))


class _PlayFailedError(BaseException):
    """A play on real ranks that raised: the ranks cannot go on. No Exception, so that Hypothesis does not retry."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _Lockstep:
    """A loop in which all ranks run rank 0's cases. It uses the default process group, which no program uses."""

    def __init__(self, rank: Rank, about_to_play: Callable[[Sequence[Case]], None]) -> None:
        self._rank, self._here, self._about_to_play = rank, RankGroups(rank), about_to_play
        self._plays = 0

    def lead(self, cases: Sequence[Case]) -> list[list[list[Bits]]]:
        """Run cases on all ranks, from rank 0; return the tensors that each rank ends with."""
        everyone: list[list[list[Bits]]] = [[]] * self._rank.world_size
        self._about_to_play(cases)
        try:
            dist.broadcast_object_list([tuple(cases)], src=0)
            dist.gather_object(self._play(cases), everyone, dst=0)
        except Exception as error:
            raise _PlayFailedError(error) from error
        return everyone

    def end(self) -> None:
        """End all ranks' loops, from rank 0."""
        dist.broadcast_object_list([None], src=0)

    def follow(self) -> None:
        """Run rank 0's cases on another rank until rank 0 ends the loop."""
        received: list[tuple[Case, ...] | None] = [None]
        dist.broadcast_object_list(received, src=0)
        while received[0] is not None:
            dist.gather_object(self._play(received[0]), dst=0)
            dist.broadcast_object_list(received, src=0)

    def _play(self, cases: Sequence[Case]) -> list[list[Bits]]:
        with self._rank.step(self._plays):
            results = drive(play(self._here, cases), self._rank.rank)
            drive(self._meet(), self._rank.rank)
        self._plays += 1
        return results

    async def _meet(self) -> None:
        """Wait for all ranks at a barrier, where the supervisor sees late ranks; it does not see the default group."""
        await self._rank.barrier(label=f"the end of play {self._plays}")


def _compare(name: str, world: World, cases: Sequence[Case]) -> list[str]:
    try:
        return [str(one) if one.agrees else f"{one}{_DIFFERS}" for one in compare(name, world, cases)]
    except Exception as error:
        return [f"{name}: {type(error).__name__}: {error}{_DIFFERS}"]


def simulated_world(simulate: Simulate) -> World:
    """Return the simulator as a world."""

    def world(cases: Sequence[Case]) -> list[list[list[Bits]]]:
        program = CaseProgram(cases)
        simulate(scenario_of(cases[0].hosts, cases[0].gpus), program)
        return [program.returned[rank] for rank in sorted(program.returned)]

    return world


def scenario_of(hosts: int, gpus_per_host: int, *, name: str = "check", timeout_s: float = 20.0) -> Scenario:
    """Return a minimal scenario of that many ranks on gloo; its own program does not run."""
    wire = Link(bytes_per_s=1e9, latency_ns=10_000)
    rates = dict.fromkeys(("float16", "bfloat16", "float32", "float64"), 1e10)
    gpu = Gpu(name="cpu", kind="cpu", memory_bytes=1 << 30, memory_bytes_per_s=1e10, flops_per_s=rates)
    inside = Inside(kind="memory", link=wire, bridge_bytes_per_s=1e10)
    nics = Nics(per="host", count=1, link=wire)
    host = Host(gpus=gpus_per_host, gpu=gpu, inside=inside, nics=nics, cores=2, memory_bytes=1 << 33)
    return Scenario(
        name=name,
        path=Path(f"{name}.toml"),
        program="all_to_all",
        cluster=Cluster(profile="inline", hosts=hosts, host=host, network=Network(kind="non_blocking")),
        run=RunSettings(library=DEFAULT_LIBRARY, steps=1, payload="values", timeout_s=timeout_s),
    )


def session_groups(hosts: int, gpus_per_host: int, seed: int) -> tuple[GroupSpec, ...]:
    """Return the groups that all cases of a check use: setting up a group takes a while."""
    draw, size = random.Random(seed), hosts * gpus_per_host
    drawn = [draw.sample(range(size), draw.randint(1, size)) for _ in range(_NEW_GROUPS)]
    named = (WORLD, GroupSpec("intra"), GroupSpec("cross"))
    return (
        *named,
        *(GroupSpec("new", tuple(ranks)) for ranks in drawn),
        *(replace(one, is_aside=True) for one in named),
    )


def outcomes(out: Path) -> list[PropertyOutcome]:
    """Read the outcomes that rank 0 wrote into the folder."""
    return [PropertyOutcome(**one) for one in json.loads((out / _OUTCOME).read_text())]


def tell_playing(recording: Recording, out: Path, spool: Path) -> None:
    """Print the cases at which a check was lost; the writer of a check's job, which stores no spans."""
    if not recording.info.complete and (out / _PLAYING).exists():
        print(f"The check was lost while it played\n    {(out / _PLAYING).read_text()}", flush=True)
