"""Scripts on simulated GPUs: what decides is known, kernels are priced, calls are those with values."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scenarios.seam.errors import ProgramError
from scenarios.seam.trace import Recording
from scenarios.workloads.recording.file import NAME
from scenarios.workloads.script.command import load_given
from tests.sim.unjudged import simulate_unjudged
from tests.small import with_free_host

ROOT = Path(__file__).parents[2]
SCRIPTS, EXAMPLES = ROOT / "tests" / "data" / "scripts", ROOT / "examples" / "scripts"


def play_script(
    path: Path,
    *args: str,
    profile: str = "dgx_h100",
    ranks: tuple[int, int] = (2, 2),
    steps: int = 2,
    payload: str | None = None,
    has_free_host: bool = False,
) -> Recording:
    overrides = {"profile": profile, "steps": steps, "timeout": "60 s", "payload": payload}
    made = load_given(path, overrides, args=args, hosts=ranks[0], gpus_per_host=ranks[1])
    return simulate_unjudged(with_free_host(made) if has_free_host else made)


def steps_ns(recording: Recording) -> list[int]:
    """Return the time of each step of rank 0 in ns."""
    own = [span for span in recording.spans if (span.rank, span.kind) == (0, "step")]
    return [span.end_ns - span.start_ns for span in sorted(own, key=lambda span: span.step)]


def recorded_steps(recording: Recording) -> list[list[Any]]:
    """Return the recorded requests of rank 0 before its first step, in each step, and after the last."""
    fields = json.loads(gzip.decompress(recording.kept[NAME]))
    steps: list[list[Any]] = [[]]
    for line in (fields["lines"][index] for index in fields["sequences"][fields["ranks"][0]]):
        steps[-1].append(line)
        if line[0] == "step":
            steps.append([])
    return steps


def calls(recording: Recording, rank: int) -> list[tuple[Any, ...]]:
    own = [span for span in recording.spans if span.rank == rank and span.group]
    own.sort(key=lambda span: (span.step, span.group.rpartition("/")[2], span.call, span.issued_ns))
    return [(one.step, one.kind, one.label, one.call, one.bytes_in, one.bytes_out, one.dtype) for one in own]


@pytest.mark.supports("streams, `wait_stream`, events", "GPUs")
def test_values_that_control_a_gpu_script_are_known() -> None:
    """The script asserts it: integers, lengths, objects, messages; and streams meet."""
    recording = play_script(SCRIPTS / "on_gpu.py", ranks=(1, 2))
    step = [span for span in recording.spans if span.rank == 0 and span.step == 1]
    assert {span.stream for span in step} == {"main", "stream 1"}
    (reduced,) = [span for span in step if span.kind == "all_reduce"]
    before = [span for span in step if span.kind == "compute" and span.stream == "main" and span.sequence < 100]
    assert reduced.stream == "stream 1"
    assert any(span.start_ns >= reduced.end_ns for span in step if span.stream == "main")  # which waits for it
    assert before


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("transformer_fsdp2", ["--hybrid"]),
        pytest.param("transformer_ddp", [], marks=pytest.mark.slow),
        pytest.param("tensor_parallel", [], marks=pytest.mark.slow),
        pytest.param("pipeline_parallel", [], marks=pytest.mark.slow),
        pytest.param("zero", [], marks=pytest.mark.slow),
    ],
)
@pytest.mark.supports("DistributedDataParallel", "GPUs")
@pytest.mark.supports("FSDP2 (`fully_shard`), HSDP", "GPUs")
@pytest.mark.supports("tensor parallelism, sequence parallelism, meshes of two dimensions", "GPUs")
@pytest.mark.supports("pipeline parallelism: torch.distributed.pipelining", "GPUs")
@pytest.mark.supports("ZeroRedundancyOptimizer", "GPUs")
def test_a_gpu_scripts_calls_equal_those_with_values(name: str, args: list[str]) -> None:
    """As on CPUs, where the script computes: of the same sizes, in the same order in each group."""
    file = EXAMPLES / f"{name}.py"
    without, with_values = play_script(file, *args), play_script(file, *args, profile="emulated_200mbit")
    for rank in range(4):
        assert calls(without, rank) == calls(with_values, rank)


def test_kernels_are_priced_and_gathers_of_sharded_parameters_overlap_them() -> None:
    recording = play_script(EXAMPLES / "transformer_fsdp2.py", "--layers", "6", "--dim", "2048", ranks=(1, 2))
    step = [span for span in recording.spans if span.rank == 0 and span.step == 1]
    kernels = [span for span in step if span.kind == "compute"]
    # A layer's products: 12 dim^2 parameters, 128 words, forward and twice backward.
    assert sum(span.flops for span in kernels) == pytest.approx(6 * 6 * 12 * 2048**2 * 128, rel=0.1)
    gathered = [span for span in step if span.kind == "all_gather_into_tensor"]
    main = [span for span in kernels if span.stream == "main"]
    beside = sum(
        max(0, min(one.end_ns, other.end_ns) - max(one.start_ns, other.start_ns)) for one in gathered for other in main
    )
    assert beside > 0.3 * sum(span.end_ns - span.start_ns for span in gathered)


@pytest.mark.supports("convolutions, `channels_last`", "GPUs")
def test_convolutions_keep_channels_last(tmp_path: Path) -> None:
    """`to(memory_format=...)` moves a tensor on its GPU, and cuDNN takes the layout of the input or of the weight."""
    (file := tmp_path / "layouts.py").write_text(
        """import torch
from torch import nn
last = {"memory_format": torch.channels_last}
images = torch.randn(4, 3, 8, 8, device="cuda")
assert not images.to(memory_format=torch.preserve_format).is_contiguous(**last)
with torch.device("cuda"):
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3))
    laid = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)).to(**last)
assert plain(images).is_contiguous()
assert laid[0].weight.is_contiguous(**last)
given = images.to(**last).requires_grad_()
assert given.is_contiguous(**last) and not given.is_contiguous()
optimizer = torch.optim.SGD(laid.parameters(), lr=0.1)
for x in (given, given, images):
    with torch.autocast("cuda", torch.float16):
        found = laid(x)
    assert found.is_contiguous(**last) and not found.is_contiguous()
    found.float().sum().backward()
    assert laid[0].weight.grad.is_contiguous(**last)
    optimizer.step()
assert given.grad.is_contiguous(**last)
"""
    )
    play_script(file, ranks=(1, 1))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("range(int(x.long()[0]))", "RuntimeError: the script needs a value, .*: expected --play live"),
        ("torch.nonzero(x)", "RuntimeError: the script needs the result of nonzero"),
        ("x @ torch.ones(3, device='cuda')", "RuntimeError: .*size"),  # the user's own mistake
    ],
)
def test_reading_an_uncomputed_value_raises_one_sentence(line: str, sentence: str, tmp_path: Path) -> None:
    (file := tmp_path / "decides.py").write_text(f"import torch\nx = torch.randn(8, device='cuda')\n{line}\n")
    with pytest.raises(ProgramError, match=rf"decides\.py:3: {sentence}"):
        play_script(file, ranks=(1, 1))


@pytest.mark.parametrize(
    ("name", "args", "hosts"),
    [
        ("transformer_ddp", [], 1),
        pytest.param("transformer_fsdp2", ["--hybrid"], 2, marks=pytest.mark.slow),
        pytest.param("tensor_parallel", [], 2, marks=pytest.mark.slow),
        pytest.param("local_sgd", [], 2, marks=pytest.mark.slow),
    ],
)
@pytest.mark.supports("local SGD: PostLocalSGDOptimizer, PeriodicModelAverager", "GPUs")
@pytest.mark.supports("`--play live`: losses of real training", "GPUs")
def test_a_live_gpu_script_trains_as_on_cpus(name: str, args: list[str], hosts: int) -> None:
    """Losses are those of values, kernels those of the profile's GPU."""
    run = partial(play_script, EXAMPLES / f"{name}.py", *args, ranks=(hosts, 2))
    live, on_cpus = (run(profile=profile, payload="values") for profile in ("dgx_h100", "emulated_200mbit"))
    losses, expected = ([(one.rank, one.step, one.value) for one in run.metrics] for run in (live, on_cpus))
    assert [each[:2] for each in losses] == [each[:2] for each in expected]
    assert [each[2] for each in losses] == pytest.approx([each[2] for each in expected], rel=1e-5)
    for rank in range(2 * hosts):
        assert calls(live, rank) == calls(on_cpus, rank)
    by_sizes = run()
    flops, same = (sum(span.flops for span in run.spans if span.step == 1) for run in (live, by_sizes))
    assert flops == pytest.approx(same)
