"""Recordings of programs: played again they are the program, to the ns, also on links for which they were not made."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.store import run_folder as store
from scenarios.config.faults import Fault
from scenarios.config.host_costs import Eager
from scenarios.config.load import load
from scenarios.config.scenario import Launching, Scenario, ShardingType, UsersCode
from scenarios.seam.backend import Work
from scenarios.seam.errors import CollectiveError, ProgramError, ScenarioError
from scenarios.seam.kernel import elementwise
from scenarios.seam.program import Program
from scenarios.seam.rank import Rank
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.build import build
from scenarios.workloads.recording.config import RecordedRun, ReplayedProgram
from scenarios.workloads.recording.file import NAME, read
from scenarios.workloads.recording.recorder import ProgramRecorder
from scenarios.workloads.script.command import load_given
from sim.run import play
from tests.commands import command
from tests.small import CORE, GPU, TCP, Play, change, cluster, recommender, scenario
from twinstep.prediction import main

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.toml") if path.stem != "study")


def play_program(
    made: Scenario, program: Program, recorder: ProgramRecorder | None = None
) -> tuple[list[Span], Recording]:
    spans: list[Span] = []
    found = play(made, program, spans.extend, recorder=recorder)
    return sorted(spans, key=lambda span: (span.rank, span.stream, span.sequence)), found


def again(made: Scenario, file: Path) -> Scenario:
    """Return a scenario with its program's recording in place of the program."""
    found = read(file, "program")
    workload = ReplayedProgram(
        options=RecordedRun(file=file, sha256="", uses_host_path=found.uses_host_path),
        launching=Launching(cuda_graphs=found.cuda_graphs),
    )
    return change(replace(made, program="recording"), payload="sizes", workload=workload)


def check(folder: Path, made: Scenario, *others: Scenario, program: Program | None = None) -> Path:
    """Record a program, and compare what its recording does with what it does, on all these clusters."""
    recorder = ProgramRecorder(made)
    spans, recording = play_program(made, program or build(made), recorder)
    file = folder / NAME
    file.write_bytes(recording.kept[NAME])
    for each in (made, *others):
        expected, whole = (spans, recording) if each is made else play_program(each, program or build(each))
        replayed = again(each, file)
        found, replay = play_program(replayed, build(replayed))
        assert found == expected
        assert repr(replay.metrics) == repr(whole.metrics)
        assert replay.links == whole.links
        shares = [one.share for one in whole.layers]  # sums over kernels that a replay has more than once
        assert [one.share for one in replay.layers] == pytest.approx(shares)
        assert [replace(one, share=1.0) for one in replay.layers] == [replace(one, share=1.0) for one in whole.layers]
    return file


TYPES: Sequence[ShardingType] = (
    *("data_parallel", "table_wise", "row_wise", "column_wise"),
    *("table_row_wise", "table_column_wise", "grid_shard"),
)
ALL = [f'name = "{each}"\nrows = 1000\nids_per_sample = 4\nsharding = ["{each}"]' for each in TYPES]
HOSTED = 'name = "hosted"\nrows = 100_000\nids_per_sample = 4\nsharding = ["row_wise"]\nkernel = "{}"\n'
COPIES = "data = {copies = true}\n"
RECOMMENDERS = {
    **{each: recommender(table) for each, table in zip(TYPES, ALL, strict=True)},
    "all types": recommender(*ALL),
    "copied": recommender(*ALL, more=f'{COPIES}pipeline.kind = "base"'),
    "sparse_dist": recommender(*ALL, more=f'{COPIES}pipeline.kind = "sparse_dist"'),
    "prefetched": recommender(*ALL, HOSTED.format("fused_uvm_caching"), more='pipeline.kind = "prefetch_sparse_dist"'),
    "semi_sync": recommender(*ALL, more='pipeline.kind = "semi_sync"'),
    "in host memory": recommender(*ALL, HOSTED.format("fused_uvm")),
    "2D": recommender(*ALL[:4], more="replication = {sharding_group_size = 2}"),
    "quantized": recommender(*ALL[1:4], more='qcomms = {forward_precision = "fp16", backward_precision = "bf16"}'),
    "compressed": recommender(*ALL[1:4], more='compression = {kind = "layerwise_powersgd", start_powerSGD_iter = 2}'),
    "CUDA graphs": recommender(*ALL, more="launching = {cuda_graphs = true}"),
    "on cores": recommender(*ALL, profile="emulated_200mbit"),
}
ON_CORES = {"cluster.nic.rate": "100 Mbit/s"}
ON_GPUS = {"cluster.nic.rate": "100 Gbit/s", "cluster.inside.rate": "150 GB/s"}


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_a_recommender_and_its_recording_make_the_same_spans(name: str, tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(RECOMMENDERS[name])
    check(tmp_path, load(path), load(path, ON_CORES if name == "on cores" else ON_GPUS))


READY = ("all_to_all_4x2", "criteo_small_2x2", "powersgd_4x2_3g", "twrw_2x2")


@pytest.mark.parametrize("name", [*READY, *map(str, EXAMPLES)], ids=lambda name: Path(name).stem)
@pytest.mark.parametrize("fidelity", ["flows", "links"])
def test_ready_scenarios_and_examples_are_recorded(name: str, fidelity: str, tmp_path: Path) -> None:
    made = load(name, {"ranks": "each", "fidelity": fidelity, "steps": 2})
    check(
        tmp_path, made, load(name, {"ranks": "each", "fidelity": fidelity, "steps": 2, "cluster.nic.latency": "1 ms"})
    )


def test_values_that_decide_sizes_are_recorded_as_sizes(tmp_path: Path) -> None:
    made = load("twrw_2x2", {"payload": "values"})
    file = check(tmp_path, made)
    assert len(read(file, "program").sequences) > 1  # the ids of each rank differ


def tensor(rank: Rank, *shape: int) -> torch.Tensor:
    return torch.empty(shape, device=rank.device)


async def every_verb(rank: Rank) -> None:
    """Call all verbs, each with its further arguments, on several groups."""
    pair = [rank.new_group(ranks) for ranks in ([0, 2], [1, 3])][rank.rank % 2]
    size, right, left = rank.world_size, (rank.rank + 1) % rank.world_size, (rank.rank - 1) % rank.world_size
    root = rank.rank == 1
    with rank.step(0):
        one, rows = tensor(rank, 4), tensor(rank, size, 4)
        lists = [tensor(rank, 4) for _ in range(size)]
        uneven = [tensor(rank, 1 + place) for place in range(size)]
        works: list[Work[Any]] = [
            rank.all_reduce(one, torch.distributed.ReduceOp.MAX, pair, label="in a pair", role="other"),
            rank.all_reduce_coalesced([tensor(rank, 4), tensor(rank, 3)]),
            rank.reduce_scatter_tensor(tensor(rank, 4), rows),
            rank.all_gather_into_tensor(tensor(rank, size, 4), one),
            rank.all_gather(uneven, tensor(rank, 1 + rank.rank)),
            rank.reduce_scatter(tensor(rank, 1 + rank.rank), [tensor(rank, 1 + place) for place in range(size)]),
            rank.all_gather_into_tensor_coalesced([tensor(rank, size, 4), tensor(rank, size)], [one, tensor(rank, 1)]),
            rank.all_gather_coalesced(
                [[tensor(rank, 4), tensor(rank, 2)] for _ in range(size)], [one, tensor(rank, 2)]
            ),
            rank.reduce_scatter_tensor_coalesced([tensor(rank, 4), tensor(rank, 1)], [rows, tensor(rank, size)]),
            rank.all_to_all(lists, [tensor(rank, 4) for _ in range(size)]),
            rank.all_to_all_single(tensor(rank, 1 + 2 + 3 + 0), tensor(rank, 6), *_uneven(rank)),
            rank.broadcast(one, 1),
            rank.reduce(one, 1),
            rank.gather(one, [tensor(rank, 4) for _ in range(size)] if root else None, 1),
            rank.scatter(one, [tensor(rank, 4) for _ in range(size)] if root else None, 1),
            rank.barrier(rank.cross),
            rank.monitored_barrier(),
            rank.send(tensor(rank, 7), right),
            rank.recv(tensor(rank, 7), left, label="from the left"),
        ]
        for work in works:
            await work
        rank.record("loss", 0.5)


def _uneven(rank: Rank) -> tuple[list[int], list[int]]:
    """Return the splits of an exchange in which rank n sends (n + m) % 4 rows to rank m."""
    splits = [(rank.rank + peer) % 4 for peer in range(4)]
    return splits, splits


async def with_streams(rank: Rank) -> None:
    """Compute on streams that wait for each other, with tasks that await works of the program's own coroutine."""
    side, copies = rank.stream("side"), rank.stream("copies")
    own = side.new_group([0, 1, 2, 3])
    for index in range(3):
        with rank.step(index):
            first = rank.compute(elementwise(1000 + 100 * rank.rank), list, label="first")
            side.after(first)
            sums = side.all_reduce(tensor(rank, 1000), group=own)

            async def task(works: Sequence[Work[Any]], index: int = index) -> int:
                for work in works:
                    await work
                await copies.compute(elementwise(50 * (index + rank.rank)), list)
                return index

            begun = copies.spawn(task([sums]))
            second = rank.compute(elementwise(10_000), list, label="second", role="dense")
            await rank.synchronize(second)
            assert await begun == index
            copied = copies.compute(elementwise(10), list)
            rank.after(copied)
            await rank.all_gather_into_tensor(tensor(rank, 40), tensor(rank, 10))
            rank.record("loss", 1.0 + index)


async def after_errors(rank: Rank) -> None:
    """Go on after errors in a step and in a computation for which the host waits."""
    for index in range(3):
        with pytest.raises(KeyError):
            await _failing_step(rank, index)
        await rank.compute(elementwise(1000), list)


async def _failing_step(rank: Rank, index: int) -> None:
    with rank.step(index):
        with pytest.raises(KeyError):
            await rank.synchronize(rank.compute(elementwise(50_000_000), {}.__getitem__, "key"))
        await rank.all_reduce(tensor(rank, 100))
        raise KeyError


def _slower(made: Scenario) -> Scenario:
    """Return the scenario with NICs of a tenth of the rate, and with far longer latencies."""
    host = made.cluster.host
    link = replace(host.nics.link, bytes_per_s=host.nics.link.bytes_per_s / 10, latency_ns=50_000)
    slow = replace(host, nics=replace(host.nics, link=link))
    return replace(made, cluster=replace(made.cluster, host=slow))


@pytest.mark.parametrize("function", [every_verb, with_streams, after_errors], ids=lambda function: function.__name__)
@pytest.mark.parametrize("payload", ["sizes", "values"])
@pytest.mark.parametrize("where", ["gloo", "nccl", "eager", "cores"])
def test_every_verb_and_stream_is_recorded(function: Any, payload: str, where: str, tmp_path: Path) -> None:
    gpu: dict[str, dict[str, Any]] = {"cores": {"gpu": CORE, "tcp": TCP}, "eager": {"gpu": replace(GPU, eager=Eager())}}
    on, library = cluster(**gpu.get(where, {})), "gloo" if where in ("gloo", "cores") else "nccl"
    made = scenario(on, payload=payload, library=library, options=None, steps=3)
    check(tmp_path, made, _slower(made), program=Play(function))


@dataclass(frozen=True)
class Drawn(Program):
    """A program of drawn calls: on the main stream, in tasks of two further streams, and waits for any of them."""

    calls: Sequence[tuple[str, int, int, Sequence[int]]]

    async def __call__(self, rank: Rank) -> None:
        streams = [rank.stream("one"), rank.stream("two")]
        left = list[tuple[Work[Any], bool]]()  # with whether it is a task
        for index in range(2):
            with rank.step(index):
                for kind, place, size, sizes in self.calls:
                    is_wait = kind in ("await", "after", "synchronize")
                    work, is_task = left.pop(place % len(left)) if left and is_wait else (None, False)
                    if kind == "task":
                        side = streams[place % 2]
                        left.append((side.spawn(_task(side, sizes)), True))
                    elif kind == "compute":
                        left.append((rank.compute(elementwise(size * (1 + rank.rank)), list, label="own"), False))
                    elif kind == "call":
                        left.append((rank.all_gather_into_tensor(tensor(rank, 4 * size), tensor(rank, size)), False))
                    elif work is None:
                        continue
                    elif kind == "await" or is_task:  # a stream that waits for a task of its own never goes on
                        await work
                    elif kind == "after":
                        [rank, *streams][size % 3].after(work)
                    else:
                        await rank.synchronize(work)
        for last, _ in left:
            await last


async def _task(side: Rank, sizes: Sequence[int]) -> None:
    for size in sizes:
        work = side.all_reduce(tensor(side, size))
        await side.compute(elementwise(size + side.rank), list)
        await work


CALLS = st.tuples(
    st.sampled_from(["compute", "call", "task", "await", "after", "synchronize"]),
    st.integers(0, 7),
    st.integers(1, 100_000),
    st.lists(st.integers(1, 100_000), max_size=3),
)


@settings(max_examples=60)
@given(st.lists(CALLS, min_size=1, max_size=12), st.sampled_from(["gpus", "graphs", "cores"]))
def test_drawn_programs_are_recorded(calls: list[tuple[str, int, int, list[int]]], where: str) -> None:
    on = cluster(gpu=CORE, tcp=TCP) if where == "cores" else cluster(gpu=replace(GPU, eager=Eager()))
    workload = UsersCode(options=None, launching=Launching(cuda_graphs=where == "graphs"))
    library = "gloo" if where == "cores" else "nccl"
    made = scenario(on, workload=workload, payload="sizes", library=library, fidelity="links")
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder), made, _slower(made), program=Drawn(calls))


# What a file has


def test_equal_ranks_and_steps_are_written_once(tmp_path: Path) -> None:
    made = load("powersgd_16x1_10g", {"cluster.hosts": 4, "steps": 4, "fidelity": "links", "ranks": "each"})
    few = read(check(tmp_path, made), "program")
    assert (len(few.sequences), few.ranks) == (1, [0] * 4)
    size, lines = (tmp_path / NAME).stat().st_size, len(few.lines)
    many = read(check(tmp_path, change(made, steps=9)), "program")
    assert len(many.lines) == lines + 5 * (1 + 5)  # each step's begin, and the numbers of its tasks
    assert (tmp_path / NAME).stat().st_size < 2 * size


CORES = "cpu_local"
TOML = """program = "recording"
cluster = {{profile = "{profile}", hosts = 2, gpus_per_host = 2}}
recording.file = "first"
"""


def test_the_command_records_and_plays_the_recording(tmp_path: Path) -> None:
    """A run folder, or a file that names it, is the program from then on."""
    done = command("sim", "criteo_small_2x2", "--record", "--quiet", "--out", tmp_path / "first")
    assert (done.returncode, done.stderr) == (0, "")
    again_file = tmp_path / "again.toml"
    again_file.write_text(TOML.format(profile=CORES) + "run.steps = 4\n")
    spans = store.load(tmp_path / "first").spans
    for number, source in enumerate((tmp_path / "first", again_file)):
        out = tmp_path / f"again {number}"
        done = command("sim", source, "--record", "--quiet", "--out", out)
        assert (done.returncode, done.stderr) == (0, "")
        assert store.load(out).spans.equals(spans)
        recorded, first = (read(each / NAME, "program") for each in (out, tmp_path / "first"))
        same: dict[str, Any] = {"program": "", "script": "", "sha256": "", "keys": {}}
        assert replace(recorded, **same) == replace(first, **same)


@pytest.mark.parametrize("name", ["powersgd_4x2_3g", "all_reduce_4x1_200mbit"])
def test_a_folder_keeps_the_keys_of_the_recorded_run(name: str, tmp_path: Path) -> None:
    slow = [{"host": 1, "gpu": 0, "speed": 0.5}]
    asked = {"ranks": "each", "steps": 2, "seed": 5, "cluster.nic.latency": "70 us", "cluster.faults": slow}
    made = load(name, asked)
    spans, recording = play_program(made, build(made), ProgramRecorder(made))
    (tmp_path / NAME).write_bytes(recording.kept[NAME])
    replayed = load_given(tmp_path, {})
    run = replace(made.run, batch_size=1, payload="sizes", folded_by="")
    assert (replayed.cluster, replayed.run) == (made.cluster, run)
    assert play_program(replayed, build(replayed))[0] == spans
    slower, also_slower = load(name, {**asked, "cluster.nic.latency": "2 ms"}), {"cluster.nic.latency": "2 ms"}
    assert load_given(tmp_path, also_slower).cluster == slower.cluster
    profiles = (
        ("dgx_h100", "v100_tcp_10g") if made.cluster.host.gpu.kind == "cuda" else ("cpu_local", "emulated_200mbit")
    )
    (profile, *_) = [each for each in profiles if each != made.cluster.profile]
    other = load_given(tmp_path, {"profile": profile}).cluster
    assert (other.hosts, other.host.gpus, other.faults) == (made.cluster.hosts, made.cluster.host.gpus, ())
    assert other.host.nics.link != made.cluster.host.nics.link


def test_a_folder_keeps_a_profile_of_a_file(tmp_path: Path) -> None:
    profile = ROOT / "scenarios" / "profiles" / "dgx_h100.toml"
    (tmp_path / "own.toml").write_text(profile.read_text() + "\n[[cluster.faults]]\nhost = 0\ngpu = 1\nspeed = 0.5\n")
    path = tmp_path / "scenario.toml"
    path.write_text(
        'program = "collective"\ncluster = {profile = "own.toml", hosts = 2, gpus_per_host = 2}\n'
        '[collective]\nop = "all_reduce"\nsize = "1 MB"\n'
    )
    made = load(path, {"cluster.faults[0].speed": 0.25})  # an item of an array of the profile
    assert [one.speed for one in made.cluster.faults if isinstance(one, Fault)] == [0.25]
    (tmp_path / NAME).write_bytes(play_program(made, build(made), ProgramRecorder(made))[1].kept[NAME])
    assert load_given(tmp_path, {}).cluster == made.cluster


def test_a_run_without_the_option_keeps_no_recording(tmp_path: Path) -> None:
    assert command("sim", "twrw_2x2", "--quiet", "--out", tmp_path / "run").returncode == 0
    assert not (tmp_path / "run" / NAME).exists()


def test_changes_are_not_added_to_a_run_that_was_not_recorded_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.toml").write_text(RECOMMENDERS["table_wise"])
    words = [str(tmp_path / "one.toml"), "--what-if", "--quiet", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert main([*words, "--record"]) == 2
    assert (
        capsys.readouterr().err
        == f"{tmp_path / 'run'}: exists already; nothing is ever overwritten, give another folder\n"
    )


# What is refused


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of a program") / "first"
    folder.mkdir()
    check(folder, load("twrw_2x2"))
    return folder


@pytest.mark.parametrize(
    ("keys", "profile", "sentence"),
    [
        ("run.steps = 7", CORES, "run.steps = 7: expected 2, all that the recording has"),
        ("", CORES, "run: missing; expected steps = 2, all that the recording has"),
        ("run.seed = 1", CORES, "run.steps: missing; expected 2, all that the recording has"),
        (
            "run.payload = 'values'",
            CORES,
            "run.payload = 'values': expected 'sizes', because a recording has no values",
        ),
        (
            "run = {ranks = 'alike', fidelity = 'links', library = 'nccl'}",
            "dgx_h100",
            "run.ranks = 'alike': expected 'each', because a recording has the calls of each",
        ),
        ("launching.fusion = true", CORES, "launching.fusion = true: expected no fusion with program = 'recording'"),
        (
            "",
            "dgx_h100",
            "recording.file = 'first': expected a recording on GPUs, as the cluster has, but it was made on",
        ),
        ("cluster.hosts = 4", CORES, "cluster.hosts = 4: expected 2, as in the recording"),
    ],
    ids=str,
)
def test_keys_that_do_not_fit_a_recording_are_named(first: Path, keys: str, profile: str, sentence: str) -> None:
    path = first.parent / "scenario.toml"
    text = TOML.format(profile=profile)
    path.write_text(text.replace("hosts = 2", "hosts = 4") if "hosts" in keys else f"{text}{keys}\n")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert any(one.startswith(f"{path}: {sentence}") for one in caught.value.sentences), caught.value.sentences


def test_hosts_that_stand_for_others_are_not_recorded(tmp_path: Path) -> None:
    alike = ("--ranks", "alike", "--fidelity", "links")
    done = command("sim", "powersgd_4x2_3g", *alike, "--record", "--quiet", "--out", tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr.endswith("run.ranks = 'alike': expected 'each', to record every rank\n")


@pytest.mark.parametrize(
    "refused",
    [
        lambda rank: rank.all_reduce(tensor(rank, 4)[::2]),
        lambda rank: rank.new_group([0, 99]),
        lambda rank: rank.stream("main"),
    ],
    ids=["call", "group", "stream"],
)
def test_a_program_that_goes_on_after_a_refused_call_is_not_recorded(refused: Any, tmp_path: Path) -> None:
    async def program(rank: Rank) -> None:
        with pytest.raises((CollectiveError, ProgramError, ValueError)):
            refused(rank)

    with pytest.raises(ProgramError, match=r"expected a program whose calls all succeed, to record it$"):
        check(tmp_path, scenario(options=None), program=Play(program))


def damage(file: Path, change: Any) -> Path:
    content = json.loads(gzip.decompress(file.read_bytes()))
    change(content)
    made = file.with_name("changed.json.gz")
    made.write_bytes(gzip.compress(json.dumps(content).encode()))
    return made


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["task", 999], "a task below "),
        (["spawn", 9], "a stream below "),
        (["work", "await", 0, 99999], "one of "),
        (["group", 0, [7]], "ranks below 4"),
        (["step"], "a step that has begun"),
        (["issue", "all_reduce", 99, "", 0, [], [], {}, False, ""], "a group below "),
        (["issue", "spawn", 0, "", 0, [], [], {}, False, ""], "a collective"),
        (["wait", 0, 0], "a request of a program"),
    ],
    ids=str,
)
def test_an_event_that_does_not_fit_is_named_with_its_place(first: Path, line: list[Any], expected: str) -> None:
    def change(content: dict[str, Any]) -> None:
        for sequence in content["sequences"]:
            sequence.append(len(content["lines"]))
        content["lines"].append(line)

    path, made = first.parent / "wrong.toml", damage(first / NAME, change)
    path.write_text(TOML.format(profile=CORES).replace('"first"', f'"{made}"') + "run.steps = 2\n")
    place = len(json.loads(gzip.decompress(made.read_bytes()))["sequences"][0]) - 1
    with pytest.raises(
        ScenarioError, match=rf"damaged: sequences\[0\]\[{place}\], lines\[\d+\], '{line[0]}': expected {expected}"
    ):
        build(load(path))


def test_tensors_that_do_not_fit_end_in_a_sentence(first: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        for line in content["lines"]:
            if line[0] == "issue":
                line[5] = [[[3], "no dtype", False]]

    made = again(load("twrw_2x2"), damage(first / NAME, change))
    with pytest.raises(ScenarioError, match=r"damaged: lines\[\d+\], 'issue': .*: dtype 'no dtype' is none of torch$"):
        build(made)


def test_arguments_that_do_not_fit_are_named_with_file_and_line(first: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        for line in content["lines"]:
            if line[:2] == ["issue", "all_reduce"]:
                line[7] = {"op": "none"}

    file = damage(first / NAME, change)
    made = again(load("twrw_2x2"), file)
    expected = rf"^{file}: rank \d: lines\[\d+\]: expected an event that fits those before, as it was written: .*none"
    with pytest.raises(ProgramError, match=expected):
        play_program(made, build(made))


@pytest.fixture(scope="module")
def reduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record ranks that reduce once, each with a sequence of its own."""

    async def program(rank: Rank) -> None:
        with rank.step(0):
            await rank.all_reduce(tensor(rank, 4), label="sum")

    made = scenario(options=None)
    folder = tmp_path_factory.mktemp("reduction")
    (folder / NAME).write_bytes(play_program(made, Play(program), ProgramRecorder(made))[1].kept[NAME])
    return folder


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        (
            "ends early",
            r"^deadlock at .*'sum' .*, which rank 1 never entered; {}: lines\[\d+\] of rank 0.*: expected waits",
        ),
        ("other size", r"^{}: rank \d: lines\[\d+\]: expected an event that fits .*'sum'"),
        (
            "never awaited",
            r"recording.file = '{}': .* sequences\[0\], lines\[\d+\], 'issue': expected a wait for it",
        ),
    ],
)
def test_ranks_that_do_not_meet_are_named_with_file_and_line(reduction: Path, kind: str, sentence: str) -> None:
    def change(content: dict[str, Any]) -> None:
        lines, (own, *_) = content["lines"], content["sequences"]
        calls = [number for number in own if lines[number][0] == "issue"]
        other = list(own)
        if kind == "ends early":
            other = [number for number in own if lines[number][0] not in ("issue", "work")]
        elif kind == "other size":
            lines.append([*lines[calls[0]][:5], [[[5], *lines[calls[0]][5][0][1:]]], *lines[calls[0]][6:]])
            other[own.index(calls[0])] = len(lines) - 1
        else:
            own.insert(own.index(calls[0]), calls[0])
        content["sequences"].append(other)
        content["compiled"].append([])
        content["ranks"][1] = len(content["sequences"]) - 1

    file = damage(reduction / NAME, change)
    made = again(scenario(options=None), file)
    with pytest.raises((ProgramError, ScenarioError), match=sentence.format(file)):
        play_program(made, build(made))


def test_recordings_of_scripts_and_programs_are_told_apart(first: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is one of program 'dlrm' \(recording.file\)$"):
        read(first / NAME)
    made = damage(first / NAME, lambda content: [content.pop(key) for key in ("program", "uses_host_path")])
    with pytest.raises(ValueError, match=r"is one of program 'script' \(script.recording\)$"):
        read(made, "program")
