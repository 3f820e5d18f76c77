"""What training scripts do beside their steps: data loaders, mixed precision, checkpoints, graphs, memory."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from scenarios.seam.errors import ProgramError
from scenarios.seam.trace import CACHED, Recording, Span
from tests.sim.test_gpu_script import SCRIPTS, play_script, steps_ns

HABITS = SCRIPTS / "habits.py"


def compute(recording: Recording, step: int = 1) -> list[Span]:
    return [span for span in recording.spans if span.rank == 0 and span.step == step and span.kind == "compute"]


def test_computations_are_named() -> None:
    """By module, forward and backward, as autograd's nodes know it; by optimizer; by line."""
    spans = {span.label: span for span in compute(play_script(HABITS, "--workers", "2", ranks=(1, 1)))}
    assert {"blocks.0.attention", "blocks.1.mlp.3.backward", "AdamW.step", "words", "words.backward"} <= set(spans)
    assert any(label.startswith("habits.py:") for label in spans)
    forward, backward = spans["blocks.1.mlp.3"], spans["blocks.1.mlp.3.backward"]
    assert backward.flops >= 2 * 2 * 8 * 16 * 64 * 256
    assert forward.start_ns < spans["head"].start_ns < spans["head.backward"].start_ns < backward.start_ns


def reduce(recording: Recording) -> list[int]:
    """Bytes of each all-reduce of a step."""
    spans = [span for span in recording.spans if span.rank == 0 and span.step == 1 and span.kind == "all_reduce"]
    return [span.bytes_in for span in spans]


@pytest.mark.parametrize(
    "habits",
    [
        "--amp float16 --clip --finite --average --meter --events --compile --workers 2",
        "--amp bfloat16 --checkpoint --profile --prefetch",
        pytest.param("--images", marks=pytest.mark.slow),
    ],
)
@pytest.mark.supports("autocast, GradScaler, clipping of gradients", "GPUs")
@pytest.mark.supports("activation checkpoints (`torch.utils.checkpoint`)", "GPUs")
@pytest.mark.supports("`AveragedModel`, metrics reduced over ranks, CUDA events, `torch.profiler`", "GPUs")
@pytest.mark.supports("DataLoader, with and without workers", "GPUs")
def test_common_training_loops_run_on_gpus(habits: str) -> None:
    recording = play_script(HABITS, *habits.split(), ranks=(1, 2))
    assert {span.step for span in recording.spans} == {-1, 0, 1}
    assert sum(span.flops for span in compute(recording)) > 1e7
    streams = {span.stream for span in recording.spans if span.kind == "compute"}
    assert streams == ({"main", "stream 1"} if "--prefetch" in habits else {"main"})


@pytest.mark.supports("autocast, GradScaler, clipping of gradients", "CPUs")
@pytest.mark.supports("DataLoader, with and without workers", "CPUs")
def test_common_training_loops_run_on_cpus() -> None:
    recording = play_script(HABITS, "--workers", "2", "--meter", "--amp", "bfloat16", profile="cpu_local", ranks=(1, 2))
    assert reduce(recording).count(4) == 1  # what is metered; what follows the last step belongs to none


def test_mixed_precision_keeps_gradients_wide_and_skips_no_step() -> None:
    """A scaler that took gradients for infinite would skip the optimizer's steps, and there would be none."""
    plain, mixed = (play_script(HABITS, *options, ranks=(1, 2)) for options in ((), ("--amp", "float16", "--clip")))
    assert sum(reduce(plain)) == sum(reduce(mixed))
    assert {span.step for span in mixed.spans} == {-1, 0, 1}


@pytest.mark.supports("`scaled_dot_product_attention`", "GPUs")
def test_attention_is_fused() -> None:
    """Its backward pass computes scores anew: 14 of 4 + 4 + 4 products, without which there would be 12."""
    recording = play_script(HABITS, ranks=(1, 1))
    batch, words, dim = 8, 16, 64
    products = 3 * 2 * batch * words * 2 * (4 * dim * dim + 8 * dim * dim) + 3 * 2 * batch * dim * 10
    attention = 2 * (4 + 10) * batch * words * words * dim
    assert sum(span.flops for span in compute(recording)) == pytest.approx(products + attention, rel=1e-6)


@pytest.mark.supports("CUDA graphs", "GPUs")
def test_a_graph_is_launched_at_once() -> None:
    """Ten products, which would take over 40 us beside their host if they were launched one by one."""
    (graph,) = [span for span in compute(play_script(HABITS, "--graph", ranks=(1, 1))) if span.label == "CUDA graph"]
    assert graph.flops == 10 * 2 * 64**3
    assert graph.end_ns - graph.start_ns - graph.launch_ns < 35_000


IDIOMS = tomllib.loads((SCRIPTS.parent / "script_idioms.toml").read_text())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if one.get("quick") else pytest.mark.slow) for name, one in IDIOMS.items()]
)
@pytest.mark.supports("FSDP1 (`FullyShardedDataParallel`)", "GPUs")
@pytest.mark.supports("models made on `meta` or on the CPU, then moved", "GPUs")
@pytest.mark.supports("`torch.fx`, generators, `print(tensor)`, default devices", "GPUs")
@pytest.mark.supports("`trunc_normal_` and loops on unknown values", "GPUs")
def test_common_script_idioms_run(name: str, tmp_path: Path) -> None:
    (file := tmp_path / "written.py").write_text(f"import torch\n{IDIOMS[name]['script']}")
    play_script(file, ranks=(1, 2) if name == "what tensors say" else (1, 1))


def test_passes_until_convergence_are_refused(tmp_path: Path) -> None:
    (file := tmp_path / "converges.py").write_text(
        "import torch\nlayer = torch.nn.Linear(256, 256, device='cuda')\n"
        "optimizer = torch.optim.LBFGS(layer.parameters())\ndef again():\n    optimizer.zero_grad()\n"
        "    loss = layer(torch.ones(1, 256, device='cuda')).sum()\n    loss.backward()\n    return loss\n"
        "for _ in range(3):\n    optimizer.step(again)\n"
    )
    with pytest.raises(
        ProgramError, match=r"converges.py:10: .* LBFGS chooses its number of passes .*: expected --play live"
    ):
        play_script(file, ranks=(1, 1))


@pytest.mark.supports("`torch.library.custom_op`", "GPUs")
def test_an_operator_of_anyones_may_have_sparse_in_its_name(tmp_path: Path) -> None:
    """As fbgemm's have, of which ids are the sparse features; and the name of one of torch's with other arguments."""
    (file := tmp_path / "own.py").write_text(
        "import torch\n@torch.library.custom_op('own::permute_sparse_data', mutates_args=())\n"
        "def permuted(x: torch.Tensor) -> torch.Tensor:\n    return x.flip(0)\n"
        "permuted.register_fake(torch.empty_like)\n@torch.library.custom_op('own::mm', mutates_args=())\n"
        "def mm(x: torch.Tensor, scale: float) -> torch.Tensor:\n    return x * scale\n"
        "mm.register_fake(lambda x, scale: torch.empty_like(x))\nmm(torch.ones(8, 8, device='cuda'), scale=2.0)\n"
        "weight = torch.zeros(8, device='cuda', requires_grad=True)\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\nfor step in range(3):\n"
        "    (permuted(torch.ones(8, device='cuda')) * weight).sum().backward()\n    optimizer.step()\n"
    )
    assert compute(play_script(file, ranks=(1, 1)))


def test_inference_is_priced_as_without_gradients(tmp_path: Path) -> None:
    def flops(context: str) -> float:
        (file := tmp_path / "evaluates.py").write_text(
            f"""import torch
layer = torch.nn.Linear(256, 256, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(4):
    with torch.{context}():
        layer(torch.ones(64, 256, device="cuda"))
    optimizer.step()
"""
        )
        return sum(span.flops for span in compute(play_script(file, ranks=(1, 1))))

    assert flops("inference_mode") == flops("no_grad") >= 2 * 64 * 256 * 256


@pytest.mark.parametrize("profile", ["dgx_h100", "cpu_local"])
@pytest.mark.supports("`torch.save`, `torch.load`, torch.distributed.checkpoint", "CPUs", "GPUs")
def test_existing_checkpoints_are_not_overwritten(profile: str, tmp_path: Path) -> None:
    """What a script saves it loads again; the file stays what it was."""
    (file := tmp_path / "model.pt").write_text("mine")
    play_script(HABITS, "--save", str(file), profile=profile, ranks=(1, 2))
    assert file.read_text() == "mine"
    assert [each.name for each in tmp_path.iterdir()] == ["model.pt"]


@pytest.mark.supports("`torch.save`, `torch.load`, torch.distributed.checkpoint", "CPUs", "GPUs")
def test_saved_files_are_renamed_copied_removed_and_found(tmp_path: Path) -> None:
    """Checkpoints are often saved beside their path and renamed, and the best one is copied; no real file changes."""
    (tmp_path / "best.pt").write_text("mine")
    (file := tmp_path / "saves.py").write_text(
        """import os, shutil, sys
from pathlib import Path
import torch
folder = Path(sys.argv[1])
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    last, best = folder / "last.pt", folder / "best.pt"
    torch.save({"step": step}, f"{last}.tmp")
    os.replace(f"{last}.tmp", last)
    assert last.is_file() and os.path.getsize(last) > 100 and not os.path.exists(f"{last}.tmp")
    shutil.copyfile(last, best)
    assert torch.load(best) == torch.load(last) == {"step": step}
    (folder / "kept").mkdir(exist_ok=True)
    shutil.copy(last, folder / "kept")
    last.rename(folder / f"{step}.pt")
    assert torch.load(folder / "kept" / "last.pt") == torch.load(folder / f"{step}.pt") == {"step": step}
    if step:
        os.remove(folder / f"{step - 1}.pt")
        best.unlink()
    assert not last.exists() and not (folder / f"{step - 1}.pt").exists()
""",
    )
    play_script(file, str(tmp_path), profile="cpu_local", ranks=(1, 1))
    assert (tmp_path / "best.pt").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["best.pt", "kept", "saves.py"]
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize("profile", ["cpu_local", "dgx_h100"])
@pytest.mark.supports("`torch.save`, `torch.load`, torch.distributed.checkpoint", "CPUs", "GPUs")
def test_distributed_checkpoints_change_no_real_file(profile: str, tmp_path: Path) -> None:
    """A user's checkpoint stays, although the script saves over it, renames its own and removes it."""
    (mine := tmp_path / "mine").mkdir()
    for name in (".metadata", "__0_0.distcp"):
        (mine / name).write_text("mine")
    (file := tmp_path / "saves.py").write_text(
        """import os, shutil, sys
from pathlib import Path
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
dist.init_process_group("cpu:gloo,cuda:nccl")
device = torch.device("cuda", dist.get_rank()) if torch.cuda.is_available() else torch.device("cpu")
folder = Path(sys.argv[1])
model = torch.nn.Linear(400, 400).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def load(place):
    found = {"model": {key: torch.empty_like(value) for key, value in model.state_dict().items()}, "step": -1}
    dcp.load(found, checkpoint_id=place)
    assert found["step"] == step and found["model"].keys() == model.state_dict().keys()
    if device.type == "cpu":
        assert all(torch.equal(found["model"][key], value) for key, value in model.state_dict().items())


for step in range(3):
    model(torch.ones(2, 400, device=device)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "step": step}
    dcp.save(state, checkpoint_id=folder / "mine")
    load(folder / "mine")
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder / "new", thread_count=2), checkpoint_id=None)
    load(str(folder / "new"))
    dcp.async_save(state, checkpoint_id=folder / "later").result()
    load(folder / "later")
    dcp.save(state, checkpoint_id=f"file://{folder}/mine")  # by fsspec
    load(f"file://{folder}/mine")
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save({"step": step}, folder / "new" / "extra.pt")
        os.rename(folder / "new", folder / str(step))
        shutil.rmtree(folder / "later")
    dist.barrier()
    assert (folder / str(step)).is_dir() and (folder / str(step) / ".metadata").is_file()
    assert not (folder / "new").exists() and not (folder / "later").exists()
    assert sorted(os.listdir(folder)) == sorted(["mine", "saves.py", *map(str, range(step + 1))])
    assert torch.load(folder / str(step) / "extra.pt") == {"step": step}
    load(folder / str(step))
""",
    )
    play_script(file, str(tmp_path), profile=profile, ranks=(1, 2))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine", "saves.py"]
    assert [each.read_text() for each in mine.iterdir()] == ["mine", "mine"]


@pytest.mark.supports("`torch.cuda.memory_*`, `OutOfMemoryError`", "GPUs")
def test_memory_is_counted(tmp_path: Path) -> None:
    """The script asserts what it is told, and ends where there is no room."""
    (file := tmp_path / "takes.py").write_text(
        """import torch
parameters = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
optimizer = torch.optim.SGD(parameters.parameters(), lr=0.1)
assert torch.cuda.memory_allocated() == 4 << 20
x = torch.ones(100, device="cuda")
assert torch.cuda.memory_allocated() == (4 << 20) + 512
x.untyped_storage().resize_(0)
assert torch.cuda.memory_allocated() == 4 << 20
big = torch.empty(1 << 28, device="cuda")
del big
assert torch.cuda.max_memory_allocated() == (4 << 20) + (1 << 30)
torch.cuda.reset_peak_memory_stats()
for _ in range(4):
    parameters(torch.ones(1, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
assert 8 << 20 < torch.cuda.max_memory_allocated() - 2 * (32 << 20) < 16 << 20  # beside cuBLAS's workspaces
"""
    )
    tensors, free = play_script(file, ranks=(1, 1)).memory
    assert tensors.size_bytes == (4 << 20) + (1 << 30)
    assert (free.phases, free.size_bytes) == (
        CACHED,
        18 << 20,
    )  # a segment of 20 MiB has the parameters, one of 2 MiB x
    file.write_text('import torch\nfull = [torch.empty(1 << 30, device="cuda") for _ in range(100)]\n')
    with pytest.raises(ProgramError, match=r"takes.py:2: OutOfMemoryError: .* room for 4 GiB; .* 76 GiB of 79.1 GiB"):
        play_script(file, ranks=(1, 1))


@pytest.mark.supports("collectives captured in CUDA graphs", "refused", "GPUs")
def test_capturing_a_collective_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "captures.py").write_text(
        """import torch
import torch.distributed as dist
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    dist.all_reduce(x)
"""
    )
    with pytest.raises(ProgramError, match=r"captures.py:6: .* expected no collective while a CUDA graph is captured"):
        play_script(file, ranks=(1, 1))


@pytest.mark.parametrize("payload", ["sizes", "values"])
def test_attention_has_a_gradient_of_a_learned_bias(payload: str, tmp_path: Path) -> None:
    """As in T5."""
    (file := tmp_path / "biased.py").write_text(
        """import torch
bias = torch.nn.Parameter(torch.zeros(1, 4, 8, 8, device="cuda"))
optimizer = torch.optim.SGD([bias], lr=0.1)
for _ in range(3):
    x = torch.ones(2, 4, 8, 16, device="cuda", requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=bias.expand(2, 4, 8, 8)).sum().backward()
    assert bias.grad.shape == bias.shape and x.grad.shape == x.shape
    optimizer.step()
"""
    )
    assert len(steps_ns(play_script(file, ranks=(1, 1), payload=payload))) == 2


def test_products_by_expert_take_all_types_of_torchs_kernels(tmp_path: Path) -> None:
    (file := tmp_path / "experts.py").write_text(
        """import torch
device = torch.device("cuda")
experts = torch.nn.Parameter(torch.zeros(2, 16, 8, device=device))
optimizer = torch.optim.SGD([experts], lr=0.1)
ends = torch.tensor([2, 8], dtype=torch.int32, device=device)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.ones(8, 16, device=device, dtype=dtype, requires_grad=True)
    y = torch._grouped_mm(x, experts.to(dtype), offs=ends)
    assert (y.shape, y.dtype) == ((8, 8), dtype)
    y.backward(torch.ones_like(y))
    assert x.grad.shape == x.shape and experts.grad.shape == experts.shape
    optimizer.step()
"""
    )
    assert len(steps_ns(play_script(file, ranks=(1, 1)))) == 2
