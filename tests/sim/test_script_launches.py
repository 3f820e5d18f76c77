"""Scripts that start their own ranks, meet in stores of their own, or try calls: as real runs take them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.seam.errors import DeadlockError, ProgramError
from scenarios.workloads.script.config import file_of_module
from scenarios.workloads.script.meeting.stores import WAITS, AskStore, Stores
from tests.commands import command
from tests.sim.test_script import SCRIPTS, play_script


def reduce(path: Path, rank: int, profile: str, steps: int) -> list[list[int]]:
    """Bytes of the all-reduces of each step."""
    spans = play_script(path, hosts=1, gpus=2, profile=profile, steps=steps).spans
    calls = [span for span in spans if span.rank == rank and span.kind == "all_reduce"]
    return [[span.bytes_in for span in calls if span.step == step] for step in range(steps)]


@pytest.mark.parametrize("profile", ["emulated_200mbit", pytest.param("dgx_h100", marks=pytest.mark.slow)])
@pytest.mark.supports(
    "own ranks: `mp.spawn`, rows of `Process`, `elastic_launch`, `torch.distributed.run.main`", "CPUs", "GPUs"
)
def test_rank_r_of_a_spawn_is_rank_r_of_the_world(profile: str) -> None:
    """The script asserts it in each way to start ranks; each of them makes one step."""
    assert reduce(SCRIPTS / "launches.py", 1, profile, 16) == [[4 * (20 * 10 + 10)]] * 16


@pytest.mark.parametrize("name", ["stores.py", "probes.py"])
@pytest.mark.supports("own `TCPStore`, `FileStore`, `rendezvous`", "CPUs")
@pytest.mark.supports("calls that torch refuses, caught by the script", "CPUs")
def test_ranks_behave_as_under_torchrun(name: str) -> None:
    """The scripts assert it."""
    assert reduce(SCRIPTS / name, 0, "emulated_200mbit", 3) == [[4 * (8 * 8 + 8)]] * 3


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("name", ["stores.py", "probes.py"])
@pytest.mark.supports("own `TCPStore`, `FileStore`, `rendezvous`", "real")
@pytest.mark.supports("calls that torch refuses, caught by the script", "real")
def test_launched_scripts_also_run_under_torchrun(name: str) -> None:
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", str(SCRIPTS / name)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=120)


@pytest.mark.supports("calls that torch refuses, caught by the script", "GPUs")
def test_calls_that_nccl_refuses_raise_in_the_script() -> None:
    assert reduce(SCRIPTS / "probes.py", 0, "dgx_h100", 3) == [[4 * (8 * 8 + 8)]] * 3


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            "mp.spawn(print, nprocs=4)",
            r"own\.py:6: starts 4 ranks of its own: expected 2, as many as there are here: pass --gpus-per-host 4",
        ),
        ("mp.spawn(print, nprocs=torch.cuda.device_count())", r"own\.py:6: starts 0 ranks of its own: expected 2,"),
        (
            "ranks = [mp.Process(target=print, args=(rank,)) for rank in range(3)]\n"
            "[rank.start() for rank in ranks]\n[rank.join() for rank in ranks]",
            r"own\.py:7: starts 3 ranks of its own: expected 2, .* --gpus-per-host 3",
        ),
        ("subprocess.run(['torchrun', 'x.py'])", r"own\.py:6: runs 'torchrun x\.py', which starts ranks of its own: "),
        (
            "[subprocess.Popen([sys.executable, 'x.py', f'--rank={rank}']) for rank in range(2)]",
            r"own\.py:6: runs .*x\.py --rank=1', which starts ranks of its own: ",
        ),
    ],
)
@pytest.mark.supports(
    "commands that start ranks (torchrun, deepspeed, mpirun in `subprocess`)", "refused", "CPUs", "GPUs"
)
def test_impossible_ranks_raise_one_sentence(body: str, sentence: str, tmp_path: Path) -> None:
    head = "import subprocess\nimport sys\nimport torch\nimport torch.distributed as dist\n"
    (file := tmp_path / "own.py").write_text(f"{head}import torch.multiprocessing as mp\n{body}\n")
    with pytest.raises(ProgramError, match=f"rank [01]: {sentence}"):
        play_script(file, hosts=1, gpus=2)


@pytest.mark.parametrize(("hosts", "gpus"), [(1, 2), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_a_process_is_a_helper_of_who_makes_the_group_itself(hosts: int, gpus: int, tmp_path: Path) -> None:
    """The script asserts that what it started ahead of its group ran beside it, though it was given 0."""
    (file := tmp_path / "helped.py").write_text(
        """import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def fill(number, queue):
    queue.put((number, os.getpid()))


if __name__ == "__main__":
    queue = mp.Queue()
    helper = mp.Process(target=fill, args=(0, queue))
    helper.start()
    dist.init_process_group("gloo")
    number, process = queue.get()
    assert number == 0 and process == helper.pid != os.getpid()
    helper.join()
    assert helper.exitcode == 0
    layer = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        loss = layer(torch.ones(2, 8)).sum()
        loss.backward()
        dist.all_reduce(layer.weight.grad)
        optimizer.step()
"""
    )
    assert (
        len([span for span in play_script(file, hosts=hosts, gpus=gpus, steps=2).spans if span.kind == "all_reduce"])
        >= 4
    )


def test_a_helper_cannot_make_a_process_group(tmp_path: Path) -> None:
    """A process that was kept as a rank, and is none, raises where it calls init_process_group."""
    file, said = tmp_path / "helped.py", tmp_path / "said"
    file.write_text(
        f"""import torch.distributed as dist
import torch.multiprocessing as mp


def train(number):
    try:
        dist.init_process_group("gloo")
    except RuntimeError as error:
        open({str(said)!r}, "w").write(str(error))


if __name__ == "__main__":
    helper = mp.get_context("spawn").Process(target=train, args=(0,))
    helper.start()
    helper.join()
    assert helper.exitcode == 0
"""
    )
    play_script(file, hosts=1, gpus=2, timeout="100 s")
    assert said.read_text().startswith("helped.py:14: starts ranks of its own: expected ")


def test_a_worker_of_a_pool_cannot_make_a_process_group(tmp_path: Path) -> None:
    """The pool's processes are not as many as the ranks, so they are none."""
    (file := tmp_path / "pools.py").write_text(
        "import torch.distributed as dist\nimport torch.multiprocessing as mp\ndef train(number):\n"
        '    dist.init_process_group("gloo", init_method="tcp://localhost:1", rank=number, world_size=3)\n'
        'if __name__ == "__main__":\n    with mp.get_context("spawn").Pool(1) as pool:\n'
        "        pool.map(train, range(1))\n"
    )
    with pytest.raises(ProgramError, match=r"pools.py:7: .* starts ranks of its own: expected "):
        play_script(file, hosts=1, gpus=2, timeout="100 s")


def test_messages_on_gpus_go_by_the_order_of_issue(tmp_path: Path) -> None:
    """The script asserts it: its waits come in another order."""
    (file := tmp_path / "messages.py").write_text(
        """import torch
import torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
layer = torch.nn.Linear(8, 8, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    if rank == 0:
        for value in (1.0, 2.0):
            dist.send(torch.full((3,), value, device="cuda"), 1)
    else:
        x, y = torch.empty(3, device="cuda"), torch.empty(3, device="cuda")
        first, second = dist.irecv(x, 0), dist.irecv(y, 0)
        second.wait()
        first.wait()
        assert (x.tolist(), y.tolist()) == ([1.0] * 3, [2.0] * 3)
    layer(torch.ones(2, 8, device="cuda")).sum().backward()
    optimizer.step()
"""
    )
    play_script(file, hosts=1, gpus=2, profile="dgx_h100", steps=2)


def test_groups_created_in_different_orders_raise_one_sentence(tmp_path: Path) -> None:
    (file := tmp_path / "groups.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "rank = dist.get_rank()\nmembers = [0, 3] if rank in (0, 3) else [1, 2]\n"
        "group = dist.new_group(members, use_local_synchronization=True)\ndist.barrier(group)\n"
    )
    with pytest.raises(ProgramError, match=r"rank \d: new_group of \[1, 2\]: expected \[0, 3\], as another rank makes"):
        play_script(file, hosts=1, gpus=4)


def test_a_group_of_the_fake_backend_sends_nothing(tmp_path: Path) -> None:
    """Meshes have such groups in place of dimensions of one rank."""
    (file := tmp_path / "mesh.py").write_text(
        """import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("world",))
both = mesh._unflatten(0, (1, 2), ("pp", "dp"), backend_override={"pp": "fake"})
layer = torch.nn.Linear(8, 8, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    layer(torch.ones(2, 8, device="cuda")).sum().backward()
    for name in ("pp", "dp"):
        dist.all_reduce(layer.bias.grad, group=both[name].get_group())
    optimizer.step()
"""
    )
    recording = play_script(file, hosts=1, gpus=2, profile="dgx_h100", steps=2)
    reduced = [
        span.bytes_in for span in recording.spans if span.kind == "all_reduce" and (span.rank, span.step) == (0, 1)
    ]
    assert reduced == [4 * 8]


def test_a_store_in_which_nobody_comes_is_a_deadlock(tmp_path: Path) -> None:
    (file := tmp_path / "waits.py").write_text(
        "import torch.distributed as dist\ndist.TCPStore('localhost', 29611).wait(['nobody'])\n"
    )
    with pytest.raises(DeadlockError, match=r"rank 0 waits for store 'waits\.py:2 wait of \['nobody'\]'"):
        play_script(file, hosts=1, gpus=2)


def test_a_store_answers_once_it_can() -> None:
    stores = Stores()

    def request(verb: str, *arguments: object) -> object:
        return stores.answer(AskStore("here", verb, arguments, ""))

    assert request("get", "a") is WAITS
    assert request("set", "a", b"1") is None
    assert (request("get", "a"), request("add", "a", 2), request("get", "a")) == (b"1", 3, b"3")
    assert (request("compare_set", "b", b"x", b"y"), request("check", ["b"])) == (b"x", False)
    assert (request("queue_pop", "q", False), request("queue_pop", "q", True)) == (None, WAITS)


@pytest.mark.supports("`-m package.module`", "CPUs", "real")
def test_a_module_is_run_as_python_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module asserts what it finds; its package is not imported to find it."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "train.py").write_text("")
    (package / "__main__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert file_of_module("pack.train") == package / "train.py"
    assert file_of_module("pack") == package / "__main__.py"
    assert file_of_module("pack.no") is None
    (inner := tmp_path / "spaces" / "inner").mkdir(parents=True)  # packages without __init__.py
    (inner / "train.py").write_text("")
    assert file_of_module("spaces.inner.train") == inner / "train.py"
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(
        "import os\nimport sys\nimport torch\nfrom . import __main__ as other\n"
        "assert (__name__, __package__, sys.argv[1:]) == ('__main__', 'pack', ['--lr', '1', '-m'])\n"
        "assert sys.path[0] == os.getcwd()\n"
        "layer = torch.nn.Linear(8, 8)\noptimizer = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
        "for _ in range(4):\n    layer(torch.ones(2, 8)).sum().backward()\n    optimizer.step()\n"
    )
    options = ["--gpus-per-host", "1", "--steps", "2", "--quiet", "--out", tmp_path / "run"]
    done = command("sim", *options, "-m", "pack.train", "--lr", 1, "-m")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'run'}\n"), done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-m", "no.such"], "error: -m no.such: expected a module that Python finds in "),
        (["--nproc_per_node", "2", "a.py"], "error: --nproc_per_node is torchrun's: expected --gpus-per-host"),
        (["--standalone", "a.py"], "error: --standalone is torchrun's: expected none, as all ranks are started here"),
        ([], "error: expected a scenario, a script (.py) or -m and a module"),
    ],
)
@pytest.mark.parametrize("room", ["sim", "real"])
def test_words_ahead_of_a_script_that_are_torchruns(room: str, words: list[str], sentence: str) -> None:
    done = command(room, *words)
    assert done.returncode == 2
    assert sentence in done.stderr
