"""Recordings of scripts: played again they are what the script would be on that hardware; large worlds are extended."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import twinstep
from reports.store import run_folder as store
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.seam.errors import ProgramError, ScenarioError
from scenarios.seam.trace import Recording, Span
from scenarios.workloads import effort
from scenarios.workloads.build import build
from scenarios.workloads.effort import Effort
from scenarios.workloads.recording.file import NAME
from scenarios.workloads.script import program as script_program
from scenarios.workloads.script.command import load_given
from scenarios.workloads.script.recording import classes as rank_classes
from sim.run import simulate
from tests.commands import command, unfold
from tests.small import with_free_host
from twinstep.scenario_files import check_files

ROOT = Path(__file__).parents[2]
SCRIPTS, EXAMPLES = ROOT / "tests" / "data" / "scripts", ROOT / "examples" / "scripts"
FSDP2 = EXAMPLES / "transformer_fsdp2.py"


def make(path: Path, *args: str, world: tuple[int, int] | None = None, **overrides: object) -> Scenario:
    hosts, gpus = world or (None, None)
    return load_given(path, {"timeout": "60 s", **overrides}, args=args, hosts=hosts, gpus_per_host=gpus)


def play(scenario: Scenario) -> Recording:
    return simulate(scenario, build(scenario))


def keep(recording: Recording, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / NAME).write_bytes(recording.kept[NAME])
    return folder


@pytest.fixture(scope="module")
def on_cpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Path]:
    recording = play(make(SCRIPTS / "ddp.py", "fp16", world=(2, 1), profile="emulated_200mbit", steps=2))
    return recording, keep(recording, tmp_path_factory.mktemp("cpus"))


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Path]:
    own: dict[str, Any] = {"cluster.nic.rate": "100 Gbit/s"}  # the folder keeps it, until there is another profile
    recording = play(make(FSDP2, "--hybrid", world=(2, 2), profile="dgx_h100", steps=2, **own))
    return recording, keep(recording, tmp_path_factory.mktemp("gpus"))


@pytest.mark.supports("recordings, played on other hardware", "CPUs")
def test_replaying_a_recording_repeats_its_run(on_cpus: tuple[Recording, Path]) -> None:
    live, folder = on_cpus
    again = play(make(folder))
    assert again.spans == live.spans
    assert again.metrics == live.metrics
    assert again.kept == live.kept
    assert again.info.digest == live.info.digest


def test_a_recording_replays_on_other_hardware(on_cpus: tuple[Recording, Path], tmp_path: Path) -> None:
    """Links half as fast take twice as long; twice the rate of computing halves CPU time."""
    live, folder = on_cpus
    file = tmp_path / "slow.toml"
    lines = ['program = "script"', "[run]", "steps = 2", "[cluster]", 'profile = "emulated_200mbit"', "hosts = 2"]
    lines += ["gpus_per_host = 1", "[script]", f"recording = {json.dumps(str(folder))}"]
    file.write_text("\n".join(lines) + "\n")
    usual = load(file)
    slow = load(file, {"cluster.nic.rate": "100 Mbit/s"})
    quick = replace(usual.cluster.host.gpu, flops_per_s={"float32": 2 * usual.cluster.host.gpu.flops_per_s["float32"]})
    cluster = replace(usual.cluster, host=replace(usual.cluster.host, gpu=quick))

    def sum_spent(recording: Recording, kind: str) -> int:
        return sum(
            span.end_ns - span.start_ns for span in recording.spans if (span.kind == "compute") == (kind == "cpu")
        )

    assert play(usual).spans == live.spans
    assert sum_spent(play(slow), "calls") > 1.5 * sum_spent(live, "calls")
    # Not to the ns: what a core computes also waits there for gloo's threads, which are as quick as before.
    assert 0.45 < sum_spent(play(replace(usual, cluster=cluster)), "cpu") / sum_spent(live, "cpu") < 0.6


@pytest.mark.supports("recordings, played on other hardware", "GPUs")
def test_a_replay_on_another_gpu_equals_the_script_there(on_gpus: tuple[Recording, Path]) -> None:
    live, folder = on_gpus
    assert play(make(folder)).spans == live.spans
    # Another run of the script may call a Python function more or less, which takes nothing here.
    other = play(with_free_host(make(FSDP2, "--hybrid", world=(2, 2), profile="dgx_a100", steps=2)))
    assert play(with_free_host(make(folder, profile="dgx_a100"))).spans == other.spans
    assert other.spans != live.spans


def test_a_program_that_is_played_again_runs_no_script(on_cpus: tuple[Recording, Path]) -> None:
    made = make(SCRIPTS / "ddp.py", "fp16", world=(2, 1), profile="emulated_200mbit", steps=2)
    program = build(made)
    first, again = (simulate(made, program) for _ in range(2))
    assert first.spans == again.spans  # CPU time would differ


def test_the_command_takes_a_run_folder(on_cpus: tuple[Recording, Path], tmp_path: Path) -> None:
    done = command("sim", "--quiet", "--steps", "1", "--out", tmp_path / "run", on_cpus[1])
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / NAME).read_bytes() == on_cpus[0].kept[NAME]


def by_rank(spans: list[Span], rank: int) -> list[Any]:
    """Return what a rank does and when."""
    own = [span for span in spans if span.rank == rank]
    return [(one.stream, one.kind, one.label, one.group, one.start_ns, one.end_ns, one.bytes_sent) for one in own]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("transformer_fsdp2", ["--hybrid", "--layers", "1"]),
        pytest.param("transformer_ddp", [], marks=pytest.mark.slow),
        pytest.param("local_sgd", [], marks=pytest.mark.slow),
    ],
)
@pytest.mark.supports("large worlds: `--ranks alike`", "GPUs")
def test_ranks_that_were_not_recorded_are_as_if_they_were(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path, name: str, args: list[str]
) -> None:
    """What a host does may differ by a call of Python from rank to rank, so that hosts take nothing here."""
    made = with_free_host(make(EXAMPLES / f"{name}.py", *args, world=(3, 2), profile="dgx_h100", steps=2))
    each = play(made)
    monkeypatch.setattr(script_program, "MOST_PROCESSES", 4)
    extended = play(made)
    assert "note: 6 ranks of " in capfd.readouterr().err
    for rank in range(6):
        assert by_rank(extended.spans, rank) == by_rank(each.spans, rank)
    folder = keep(extended, tmp_path)
    ways: list[dict[str, Any]] = [{"ranks": "alike"}, {"fidelity": "links"}]
    alike, links = (play(with_free_host(make(folder, **way))) for way in ways)
    times = [[each[4:] for each in by_rank(found.spans, 0)] for found in (alike, links)]
    assert times[0] == times[1]


UNEVEN = """import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % 2)
with torch.device("cuda"):
    model = torch.nn.Linear(256, 10)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters())
while True:
    model(torch.ones(2, 256, device="cuda")).sum().backward()
    if dist.get_rank() == 1:
        torch.ones(64, 64, device="cuda").exp()
    optimizer.step()
    optimizer.zero_grad()
"""
# Two stages of two ranks each, that send their sizes ahead of what they compute, and a ring of all ranks.
STAGES = """import torch
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % 2)
pairs = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
halves = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
pair, half, is_first = pairs[rank % 2], halves[rank // 2], rank < 2
layer = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(layer.parameters())
while True:
    found = layer(torch.randn(32 if is_first else 1, 64, device="cuda"))
    size = torch.tensor([len(found)], device="cuda")
    if is_first:
        dist.send(size, rank + 2, group=pair)
        dist.send(found.detach(), rank + 2, group=pair)
    else:
        dist.recv(size, rank - 2, group=pair)
        given = torch.empty(int(size), 64, device="cuda")
        dist.recv(given, rank - 2, group=pair)
        found = layer(given)
    ring = [dist.P2POp(dist.isend, found.detach(), (rank + 1) % 4)]
    ring.append(dist.P2POp(dist.irecv, torch.empty(32, 64, device="cuda"), (rank + 3) % 4))
    for work in dist.batch_isend_irecv(ring):
        work.wait()
    found.sum().backward()
    dist.all_reduce(layer.weight.grad, group=half)
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("source", "world", "classes"),
    [
        (UNEVEN, (3, 2), "6 ranks of 3 classes, one run of each: rank 0 for 4, rank 1 for 1, rank 5 for 1"),
        (STAGES, (2, 2), "4 ranks of 2 classes, one run of each: rank 0 for 2, rank 2 for 2"),
    ],
    ids=["shards", "stages"],
)
@pytest.mark.supports("large worlds: `--ranks alike`", "GPUs")
def test_ranks_of_each_class_are_as_if_they_were_recorded(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    source: str,
    world: tuple[int, int],
    classes: str,
) -> None:
    """Of ten rows five ranks have two each and the last none; stages send messages, which only a rank of each has."""
    (file := tmp_path / "classes.py").write_text(source)
    made = with_free_host(make(file, world=world, profile="dgx_h100", steps=2))
    monkeypatch.setattr(rank_classes, "MANY_RANKS", 4)
    monkeypatch.setattr(rank_classes, "LONG_S", 0.0)
    each = play(made)
    hint = r"note: (\d) ranks, of (\d) classes, ran one by one in \d+ s; --ranks alike runs one rank"
    assert (found := re.search(hint, unfold(capfd.readouterr().err)))
    assert classes.startswith("{} ranks of {} classes".format(*found.groups()))
    monkeypatch.setattr(script_program, "MOST_PROCESSES", 2)
    extended = play(made)
    assert f"note: {classes}\n" in unfold(capfd.readouterr().err)
    assert "".join(f", rank {rank} for {count}" for rank, count, _ in sorted(extended.info.rank_classes)) in (
        f", {classes.split(': ')[1]}"
    )
    for rank in range(world[0] * world[1]):
        assert by_rank(extended.spans, rank) == by_rank(each.spans, rank)


def test_a_recording_keeps_one_rank_of_each_class(tmp_path: Path) -> None:
    """Stages send each other messages, so that no host stands for another; the script ends early in each draw."""
    (file := tmp_path / "stages.py").write_text(STAGES.replace("while True", "for _ in range(3)"))
    words = ["--profile", "dgx_h100", "--hosts", 2, "--gpus-per-host", 2, "--steps", 3]
    out = ["--ranks", "alike", "--keep-ranks", "2", "--out"]
    found = command("sim", *out, tmp_path / "run", "--draws", 2, *words, file)
    assert found.returncode == 0, found.stderr
    assert found.stderr.count("ended after 2 of 3 steps") == 1
    again = command("sim", *out, tmp_path / "again", tmp_path / "run")
    assert again.returncode == 0, again.stderr
    for folder in (tmp_path / "run", tmp_path / "again"):
        assert set(store.load(folder).spans.query("kind != 'step'")["rank"]) == {2}


def test_memory_is_checked_for_all_ranks_that_classes_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two hosts of stages make 16 calls in two steps on each rank; before they are played, two on each of one host."""
    (tmp_path / "stages.py").write_text(STAGES)
    (file := tmp_path / "stages.toml").write_text(
        'program = "script"\n[run]\nsteps = 2\nranks = "alike"\n[cluster]\nprofile = "dgx_h100"\nhosts = 2\n'
        'gpus_per_host = 2\n[script]\npath = "stages.py"\n'
    )
    least = Effort(operations=2 * 2).size_bytes(2)
    monkeypatch.setattr(effort, "free_memory_bytes", lambda: (least + 4 * 2 * 16 * 1000) / effort.MEMORY_LEFT)
    assert check_files([str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{file}: ok\n"
    assert unfold(printed.err) == (
        f"note: {file}: run.ranks = 'alike': the number of simulated hosts, and the memory that they need, are known"
        " only after the script has run\n"
    )
    with pytest.raises(ScenarioError, match=r"run.steps = 2: .* of free memory; this one takes about"):
        twinstep.predict(file)


def test_ctrl_c_while_classes_are_found_ends_the_command_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it goes on")

    monkeypatch.setattr(script_program, "Classes", interrupt)
    words = ["--profile", "dgx_h100", "--hosts", 2, "--gpus-per-host", 1, "--ranks", "alike", "--out", tmp_path / "run"]
    found = command("sim", *words, FSDP2)
    assert (found.returncode, os.listdir(tmp_path)) == (130, [])


def test_a_script_whose_work_is_balanced_runs_once(tmp_path: Path) -> None:
    """Ranks count each other in a store: those of a second run would find the numbers of the first one."""
    (file := tmp_path / "counts.py").write_text(
        "import os\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        f"with open({str(tmp_path / 'ran')!r}, 'a') as ran:\n    ran.write(os.environ['RANK'])\n"
        "store = dist.distributed_c10d._get_default_store()\nstore.add('n', 1)\n"
        "while store.add('n', 0) != 2:\n    pass\n"
        "layer = torch.nn.Linear(64, 64)\noptimizer = torch.optim.SGD(layer.parameters())\n"
        "for _ in range(4):\n    layer(torch.ones(8, 64)).sum().backward()\n"
        "    dist.all_reduce(layer.weight.grad)\n    optimizer.step()\n"
    )
    made = make(file, world=(2, 1), profile="emulated_200mbit", steps=2, timeout="20 s")
    recording = play(made.with_run(balanced=True))
    assert sorted((tmp_path / "ran").read_text()) == ["0", "1"]
    computed = [[span.flops for span in recording.spans if span.rank == rank and span.flops] for rank in (0, 1)]
    assert computed[0] == pytest.approx(computed[1])
    assert computed[0]


def test_ranks_that_diverge_after_their_first_step_raise_one_sentence(tmp_path: Path) -> None:
    (file := tmp_path / "differ.py").write_text(
        "import torch\nimport torch.distributed as dist\ndist.init_process_group('nccl')\n"
        "optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2, device='cuda'))])\n"
        "for i in range(9):\n x = torch.ones(8 if dist.get_rank() != 127 or i < 2 else 16, device='cuda')\n"
        " dist.all_reduce(x)\n optimizer.step()\n"
    )
    sentence = (
        r"ranks 0 and 127 do not do the same: differ.py:7 all_reduce of \[8\] is not differ.py:7 all_reduce of \[16\]"
        r" \(request \d+\); expected ranks that do the same in their first step to go on so, as one of each class is"
        " played"
    )
    with pytest.raises(ProgramError, match=sentence):
        play(make(file, world=(16, 8), profile="dgx_h100", steps=2))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("hosts = 3", "cluster.hosts = 3: expected 2, as in the recording"),
        ("gpus_per_host = 4", "cluster.gpus_per_host = 4: expected 1, as in the recording"),
        ("steps = 5", "run.steps = 5: expected at most 2, which the recording has"),
        ('path = "x.py"', "script.path = 'x.py': expected no path with a recording, which has the script's"),
        ('payload = "values"', "run.payload = 'values': expected 'sizes', because a recording has no values"),
        ('profile = "dgx_h100"', "expected a recording on GPUs, as the cluster has, but it was made on CPUs"),
    ],
)
def test_a_scenario_that_contradicts_its_recording_is_one_sentence(
    on_cpus: tuple[Recording, Path], tmp_path: Path, change: str, sentence: str
) -> None:
    values = {
        "run": {"steps": "2"},
        "cluster": {"profile": '"emulated_200mbit"', "hosts": "2", "gpus_per_host": "1"},
        "script": {"recording": json.dumps(str(on_cpus[1]))},
    }
    key, _, value = change.partition(" = ")
    values[{"steps": "run", "payload": "run", "path": "script"}.get(key, "cluster")][key] = value
    tables = [f"[{name}]\n" + "".join(f"{one} = {of}\n" for one, of in table.items()) for name, table in values.items()]
    (file := tmp_path / "odd.toml").write_text('program = "script"\n' + "".join(tables))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert any(sentence in each for each in caught.value.sentences)


@pytest.mark.parametrize("damage", ["cut", "other", "fields", "ranks"])
def test_a_damaged_recording_raises_one_sentence(on_cpus: tuple[Recording, Path], tmp_path: Path, damage: str) -> None:
    content = on_cpus[0].kept[NAME]
    if damage == "cut":
        content = content[:-20]
    else:
        fields = json.loads(gzip.decompress(content))
        if damage == "other":
            fields["format"] = 99
        elif damage == "fields":
            del fields["lines"]
        else:
            fields["ranks"] = [0, 99]
        content = gzip.compress(json.dumps(fields).encode())
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        make(tmp_path)
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"{tmp_path}: expected a recording of ")


@pytest.mark.parametrize("damage", ["ends early", "other calls"])
def test_scripts_that_do_not_meet_are_named_with_the_file(
    on_cpus: tuple[Recording, Path], tmp_path: Path, damage: str
) -> None:
    content = json.loads(gzip.decompress((on_cpus[1] / NAME).read_bytes()))
    lines, (*_, other) = content["lines"], content["sequences"]
    first = next(at for at, line in enumerate(other) if lines[line][0] == "issue")
    del other[first : -1 if damage == "ends early" else first + 2]  # without the first call, and the wait for it
    (tmp_path / NAME).write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(ProgramError) as caught:
        play(make(tmp_path))
    if damage == "ends early":
        assert str(caught.value).endswith(f"; {tmp_path / NAME}: expected calls of all members, as it was written")
    else:
        assert str(caught.value).startswith(f"{tmp_path / NAME}: the requests of a rank do not fit each other; ")


@pytest.mark.parametrize("damage", ["waits for no call", "another group", "a list too few", "no dtype"])
def test_requests_that_do_not_fit_raise_one_sentence(
    on_cpus: tuple[Recording, Path], tmp_path: Path, damage: str
) -> None:
    content = json.loads(gzip.decompress((on_cpus[1] / NAME).read_bytes()))
    for line in content["lines"]:
        if damage == "waits for no call" and line[0] == "wait":
            line[1] = 1000
        elif damage == "another group" and line[0] == "issue":
            line[2] = 99
        elif damage == "a list too few" and line[0] == "issue":
            line[5] = line[6] = []
        elif damage == "no dtype" and line[0] == "issue" and line[5]:
            line[5][0][1] = "no dtype"
    (tmp_path / NAME).write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(ProgramError) as caught:
        play(make(tmp_path))
    wanted = "the requests of a rank do not fit each other; expected a recording as it was written"
    assert str(caught.value).startswith(f"{tmp_path / NAME}: {wanted}: ")
    if damage == "no dtype":
        assert re.search(r"lines\[\d+\], 'issue': .*: dtype 'no dtype' is none of torch$", str(caught.value))


def test_real_ranks_run_the_script_itself(on_cpus: tuple[Recording, Path], tmp_path: Path) -> None:
    done = command("real", "--out", tmp_path / "run", on_cpus[1])
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"{on_cpus[1]}: expected the script itself on real ranks, not its recording"
