"""Scripts on simulated GPUs: integers keep their values beside floats, loops on unknown ones end, fbgemm's operators on
ids and sparse gradients have shapes and prices.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from scenarios.seam.errors import ProgramError
from scenarios.seam.trace import Span
from tests.sim.test_gpu_script import SCRIPTS, play_script


@pytest.mark.parametrize("name", ["known", "sparse_gradients", "jagged"])
@pytest.mark.supports("values of integers; draws; sparse gradients of embeddings", "GPUs")
@pytest.mark.supports("fbgemm's jagged operators", "GPUs")
def test_simulated_gpus_report_values_as_real_ones(name: str) -> None:
    """The scripts assert it."""
    if name == "jagged":
        pytest.importorskip("fbgemm_gpu")
    play_script(SCRIPTS / f"{name}.py", ranks=(1, 1), steps=1000)


@pytest.mark.supports("values of integers; draws; sparse gradients of embeddings", "CPUs")
def test_sparse_gradients_on_a_cpu_have_real_values() -> None:
    play_script(SCRIPTS / "sparse_gradients.py", ranks=(1, 1), steps=1000, profile="cpu_local")


@pytest.mark.supports("products of sparse matrices (COO) with dense ones", "GPUs")
def test_products_of_sparse_matrices_have_the_values_of_cpus() -> None:
    run = partial(play_script, SCRIPTS / "graph_layers.py", ranks=(1, 2), steps=3)
    live, on_cpus = (run(profile=profile, payload="values") for profile in ("dgx_h100", "emulated_200mbit"))
    losses, expected = ([one.value for one in each.metrics] for each in (live, on_cpus))
    assert len(losses) == len(expected) > 0
    assert losses == pytest.approx(expected, rel=1e-5)
    assert [span.label for span in run().spans] == [span.label for span in live.spans]


@pytest.mark.parametrize(
    "lines",
    [
        "while loss.item() > 0.1:\n    pass",
        "while (loss > 0.1).all():\n    pass",
        "for _ in itertools.count(): loss.item()",
    ],
)
def test_a_loop_that_only_a_value_ends_raises_one_sentence(lines: str, tmp_path: Path) -> None:
    (file := tmp_path / "loops.py").write_text(
        f"import itertools, torch\nloss = torch.randn(8, 9000, device='cuda').square().mean()\n{lines}\n"
    )
    with pytest.raises(ProgramError, match=r"loops\.py:3: RuntimeError: this line has read 1000 times in a step"):
        play_script(file, ranks=(1, 1))


def test_loops_that_end_otherwise_may_read_values_any_number_of_times(tmp_path: Path) -> None:
    """Norms of many parameters, and a validation of many batches; a truth that is asked for once a step stays."""
    (file := tmp_path / "asks.py").write_text(
        """import torch
loss = torch.randn(8, 9000, device="cuda").square().mean()
assert sum({n: loss.item() for n in range(1100)}.values()) == 1100
total = 0
while not total:
    for _ in range(1100):
        total += loss.item()
optimizer = torch.optim.SGD([torch.ones(3, device="cuda", requires_grad=True)])
truths, flag = [], torch.randn(9000, device="cuda").argmax() > 3
while len(truths) < 25:
    truths.append(bool(flag))
    torch.ones(3, device="cuda").sum()
    optimizer.step()
assert all(truths)
assert all([bool(flag) for _ in range(25)])
turns = 0
while flag:
    turns += 1
assert turns == 20
"""
    )
    play_script(file, ranks=(1, 1), steps=1000)


def step_of(text: str, folder: Path) -> list[Span]:
    """Return the last step's kernels of a script of two ranks."""
    (file := folder / "trains.py").write_text(text)
    return [span for span in play_script(file, ranks=(1, 2)).spans if span.rank == 0 and span.step == 1]


def test_gradients_come_through_jagged_operators(tmp_path: Path) -> None:
    """Products of the layer in front of them, forward and twice back; its gradient is reduced."""
    pytest.importorskip("fbgemm_gpu")
    step = step_of(
        """import fbgemm_gpu, os, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.parallel.DistributedDataParallel(nn.Linear(32, 32, device="cuda"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
offsets = torch.ops.fbgemm.asynchronous_complete_cumsum(torch.arange(1, 17, device="cuda"))
for _ in range(4):
    flat = torch.ops.fbgemm.dense_to_jagged(torch.randn(16, 20, 32, device="cuda", requires_grad=True), [offsets])[0]
    torch.ops.fbgemm.jagged_to_padded_dense(model(flat), [offsets], [20], 0.0).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
        tmp_path,
    )
    ids = sum(range(1, 17))
    assert sum(span.flops for span in step) == 3 * 2 * ids * 32 * 32
    (reduced,) = [span for span in step if span.group]
    assert reduced.bytes_in == 4 * (32 * 32 + 32)


def test_an_update_of_sparse_gradients_writes_the_rows_alone(tmp_path: Path) -> None:
    """Not the table, of which it is a thousandth."""

    def write(sparse: bool) -> float:
        step = step_of(
            f"""import torch
import torch.distributed as dist
dist.init_process_group("nccl")
tables = torch.nn.EmbeddingBag(1 << 20, 64, mode="sum", sparse={sparse}, device="cuda")
optimizer = torch.optim.SGD(tables.parameters(), lr=0.1)
for _ in range(4):
    dist.all_reduce(torch.ones(1, device="cuda"))
    tables(torch.arange(1024, device="cuda").view(-1, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
            tmp_path,
        )
        return sum(span.bytes_written for span in step if span.kind == "compute")

    assert write(sparse=True) < 2 * (1 << 20) < (1 << 20) * 64 * 4 < write(sparse=False)


def test_a_product_sorts_a_matrix_that_is_not_coalesced(tmp_path: Path) -> None:
    """A backward pass transposes the matrix, which is not coalesced then."""

    def moved(product: str) -> float:
        step = step_of(
            f"""import torch
import torch.distributed as dist
dist.init_process_group("nccl")
edges = torch.randint(0, 1000, (2, 5000), device="cuda")
graph = torch.sparse_coo_tensor(edges, torch.ones(5000, device="cuda"), (1000, 1000)).coalesce()
rows = torch.nn.Parameter(torch.randn(1000, 64, device="cuda"))
optimizer = torch.optim.SGD([rows], lr=0.1)
for _ in range(4):
    dist.all_reduce(torch.ones(1, device="cuda"))
    ({product}).sum().backward()
    optimizer.step()
""",
            tmp_path,
        )
        return sum(span.bytes_read + span.bytes_written for span in step if span.kind == "compute")

    assert moved("graph @ rows") == moved("graph.coalesce() @ rows")
    assert moved("graph.t() @ rows.detach() + rows") == moved("graph.t().coalesce() @ rows.detach() + rows")


@pytest.mark.supports("sparse gradients under DistributedDataParallel, over gloo", "CPUs", "GPUs")
@pytest.mark.parametrize("profile", ["emulated_200mbit", "dgx_h100"])
def test_sparse_gradients_of_replicas_travel_as_indices_and_values(profile: str) -> None:
    """Over gloo, which gathers how many there are, 72 bytes a rank, then of each row that a rank names its number, 8
    bytes, and its values (ProcessGroupGloo.cpp); the script asserts what the sums are of.
    """
    path = SCRIPTS / "sparse_replicas.py"
    recording = play_script(path, ranks=(2, 1), steps=2, profile=profile)
    line = next(at for at, text in enumerate(path.read_text().splitlines(), 1) if "loss.backward()" in text)
    for rank in range(2):
        found = sorted(
            span.bytes_in
            for span in recording.spans
            if (span.rank, span.step, span.label) == (rank, 1, f"sparse_replicas.py:{line} all_gather")
        )
        ids = {
            (32 + rank, times): {(row * times + 40 * rank + 2) % 1000 for row in range(32 + rank)}
            for times in (1, 7, 3)
        }
        rows, bags = 32 + rank, len(set().union(*ids.values()))
        assert found == sorted([72, 8 * bags, 4 * 16 * bags, 72, 8 * rows, 4 * 8 * rows])


@pytest.mark.supports("sparse gradients under DistributedDataParallel, over NCCL", "refused", "GPUs")
def test_sparse_gradients_over_nccl_are_refused(tmp_path: Path) -> None:
    (file := tmp_path / "replicas.py").write_text(
        """import torch
import torch.distributed as dist
dist.init_process_group("nccl")
tables = torch.nn.EmbeddingBag(9, 4, sparse=True, device="cuda")
model = torch.nn.parallel.DistributedDataParallel(tables)
model(torch.arange(8, device="cuda").view(-1, 2)).sum().backward()
"""
    )
    with pytest.raises(
        ProgramError, match=r"replicas\.py:6: .* sparse tensor: expected SUM over gloo, got SUM over nccl"
    ):
        play_script(file, ranks=(1, 2))
