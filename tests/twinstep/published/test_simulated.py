"""One collective on ready profiles: held against what others have measured, and what cannot be predicted."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.seam.errors import ScenarioError
from tests.lanes import examples
from twinstep.published.simulated import predict

FILE = Path(__file__).parents[2] / "data" / "published" / "collectives.csv"
LARGE_BYTES = 16 << 20
GPUS = "A100, A30, A40, B200, B300, GB200, GB300, H100, H200, L4, L40, L40S, T4, V100"
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv")


@cache
def rows() -> pd.DataFrame:
    """All of the file, with the error of each prediction."""
    read = pd.read_csv(FILE)
    rows: list[Any] = list(read.itertuples(index=False))
    read["error"] = [predicted_us(row) / row.time_us - 1 for row in rows]
    return read


def predicted_us(row: Any) -> float:
    names = ("op", "library", "gpu", "nodes", "gpus_per_node", "size_bytes", "link_gbit_per_s", "one_way_delay_ms")
    values = {name: getattr(row, name) for name in names}
    launch_us = row.launch_us
    figures = None if pd.isna(launch_us) else {"nccl_floor_ns": round(1e3 * launch_us)}
    known = {name: None if pd.isna(value) else value for name, value in values.items()}
    return predict(**known, figures=figures).predicted_us  # type: ignore[arg-type]


def of(source: str, **wanted: object) -> pd.DataFrame:
    found = rows()[rows()["source"].str.contains(source)]
    for column, value in wanted.items():
        found = found[found[column] == value]
    return found


Chosen = Callable[[], pd.DataFrame]


@pytest.mark.parametrize(
    ("chosen", "mean", "worst"),
    [
        (lambda: of("vTrain"), 0.05, 0.15),
        (lambda: of("LLMCompass"), 0.05, 0.15),
        (lambda: of("2411.13055").query("nodes != 8"), 0.05, 0.15),  # the rest has set a level's latency
        (lambda: of("GTC25", gpu="H100"), 0.05, 0.15),  # the other has set point-to-point's share
        (lambda: of("tc_cluster_setting", library="gloo", op="broadcast"), 0.05, 0.15),
        (lambda: of("tc_cluster_setting", library="gloo", op="all_reduce").query("time_us != 327000"), 0.04, 0.08),
        (lambda: of("tc_cluster_setting", library="nccl", op="all_reduce"), 0.05, 0.15),
        (lambda: of("tc_cluster_setting", library="nccl", op="send_recv"), 0.05, 0.15),
    ],
    ids=[
        "vTrain",
        "LLMCompass",
        "4 and 16 nodes",
        "all-to-all",
        "gloo's broadcast",
        "gloo's all_reduce",
        "NCCL over TCP",
        "NCCL's sends",
    ],
)
def test_large_buffers_take_what_others_have_measured(chosen: Chosen, mean: float, worst: float) -> None:
    errors = chosen().query(f"size_bytes >= {LARGE_BYTES}")["error"].abs()
    assert len(errors) > 0
    assert errors.mean() <= mean
    assert errors.max() <= worst


@pytest.mark.parametrize("source", ["vTrain", "LLMCompass", "B200"])
def test_the_mean_error_over_sizes_is_at_most_twelve_percent(source: str) -> None:
    assert of(source)["error"].abs().mean() <= 0.12


@examples(40)
@given(
    op=st.sampled_from(OPS),
    library=st.sampled_from(("gloo", "nccl")),
    gpu=st.sampled_from(("A100", "h100", "H200", "B200", "V100")),
    nodes=st.integers(1, 5),
    gpus_per_node=st.integers(1, 4),
    size_bytes=st.integers(1, 1 << 30),
)
def test_twice_the_bytes_never_take_less_than_a_switch_of_protocols(
    op: str, library: str, gpu: str, nodes: int, gpus_per_node: int, size_bytes: int
) -> None:
    """A larger buffer may go by a quicker protocol, but by none that halves its time."""
    if nodes * gpus_per_node < 2:
        return
    where = {"op": op, "library": library, "gpu": gpu, "nodes": nodes, "gpus_per_node": gpus_per_node}
    one, two = (predict(**where, size_bytes=size).predicted_us for size in (size_bytes, 2 * size_bytes))  # type: ignore[arg-type]
    assert one > 0
    assert two > one / 2


@pytest.mark.parametrize(
    ("gpus_per_node", "profile"),
    [(1, "v100_tcp_10g"), (2, "dgx1_v100"), (4, "dgx1_v100"), (8, "dgx1_v100"), (16, "dgx2_v100")],
)
def test_of_several_profiles_the_one_with_the_smallest_hosts_that_have_enough_gpus_is_taken(
    gpus_per_node: int, profile: str
) -> None:
    one = predict(op="all_reduce", library="nccl", gpu="V100", nodes=2, gpus_per_node=gpus_per_node, size_bytes=1 << 20)
    assert one.profile == profile


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"gpu": "TPU"},
            f"gpu = 'TPU': expected one that a ready profile has ({GPUS}), or a profile",
        ),
        ({"op": "scan"}, f"op = 'scan': expected one of {', '.join(OPS)}"),
        ({"library": "mpi"}, "library = 'mpi': expected gloo or nccl"),
        ({"nodes": 1, "gpus_per_node": 1}, "nodes x gpus_per_node = 1: expected 2 to 16384 ranks"),
        ({"nodes": 10**9}, "nodes x gpus_per_node = 8000000000: expected 2 to 16384 ranks"),
        ({"nodes": 0}, "nodes = 0: expected at least 1"),
        (
            {"gpu": "V100", "gpus_per_node": 9, "profile": "dgx1_v100"},
            "gpus_per_node = 9: expected at most 8, the GPUs of the mesh",
        ),
        ({"size_bytes": 0}, "size_bytes = 0: expected at least 1"),
    ],
)
def test_calls_that_cannot_be_predicted_are_one_sentence(changes: dict[str, object], sentence: str) -> None:
    given = {"op": "all_reduce", "library": "nccl", "gpu": "H100", "nodes": 2, "gpus_per_node": 8, "size_bytes": 1024}
    with pytest.raises(ScenarioError) as caught:
        predict(**{**given, **changes})  # type: ignore[arg-type]
    assert str(caught.value) == sentence
