"""A profile that is written reads back as the same cluster and the same account of how it was measured."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from real.calibration.profile import describe_measurement, profile_text
from real.machine import cpu_name
from scenarios.config.gpu import Gpu
from scenarios.config.hardware import Cluster, Host, Inside, Link, Network, Nics
from scenarios.config.host_costs import Tcp
from scenarios.config.load import load_measured, load_profile
from scenarios.config.provenance import ErrorGroup, Measured
from scenarios.config.toml.tree import read_toml
from tests.lanes import examples

KINDS = ("gemm", "embedding_lookup", "bucketize", "reduction", "qr")
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
TEXT_LINES = st.just("one line") | st.just("A line, [and]\n  another = 1")
NAME = TEXT.filter(lambda text: bool(text.strip()) and "/" not in text)
RATE = st.floats(1e6, 1e18)
SIZE = st.integers(1, 2**60 - 1)
TIME = st.integers(0, 10**9)
ERROR = st.floats(-1e6, 1e6)
GPUS = st.builds(
    Gpu,
    name=NAME,
    kind=st.sampled_from(["cuda", "cpu"]),
    memory_bytes=SIZE,
    memory_bytes_per_s=RATE,
    flops_per_s=st.fixed_dictionaries({"float32": RATE}, optional={"bfloat16": RATE}),
    efficiency=st.dictionaries(st.sampled_from([*KINDS, "default"]), st.floats(1e-6, 1.0)),
    launch_ns=TIME,
    launches_ns=st.dictionaries(st.sampled_from(KINDS), TIME),
    ramp_ns=TIME,
    ramps_ns=st.dictionaries(st.sampled_from(KINDS), TIME),
    multiprocessors=st.none() | st.integers(1, 1000),
    spread=st.just((0.5, 1.0, 2.0)) | st.just(()),
    compute_capability=st.sampled_from([70, 75, 80, 86, 89, 90, 100, 120]),
)
LINKS = st.builds(Link, bytes_per_s=RATE, latency_ns=TIME)
INSIDES = st.one_of(
    st.builds(Inside, kind=st.just("nvlink"), link=LINKS),
    st.builds(Inside, kind=st.sampled_from(["pcie", "memory"]), link=LINKS, bridge_bytes_per_s=RATE),
)
NETWORKS = st.one_of(
    st.builds(Network, kind=st.just("non_blocking"), latency_ns=TIME),
    st.builds(
        Network,
        kind=st.just("leaf_spine"),
        latency_ns=TIME,
        hosts_per_leaf=st.integers(1, 64),
        oversubscription=st.floats(1.0, 1e6),
    ),
)
TCPS = st.builds(
    Tcp,
    queue_bytes=SIZE,
    send_buffer_bytes=SIZE,
    acknowledged_share=st.floats(0.0, 1.0),
    send_bytes_per_s=RATE,
    receive_bytes_per_s=RATE,
    message_ns=TIME,
    post_ns=TIME,
    issue_ns=TIME,
    wake_ns=TIME,
    wake_spread=st.lists(st.floats(0.0, 1e6), min_size=2, max_size=4).map(sorted).map(tuple) | st.just(()),
    issue_spread=st.just((0.5, 1.0, 2.0)),
    nap_ns=st.integers(1, 10**9),
    wake_soon_ns=TIME,
    verb_ns=TIME,
    spin_ns=st.just(4_000_000),
    spin_share=st.floats(0.001, 1.0),
    cold_ns=TIME,
    stay_share=st.floats(0.0, 1.0),
)
MEASURED = st.builds(
    Measured,
    **dict.fromkeys(("machine", "cpu", "kernel", "python", "torch", "date", "command"), TEXT),  # type: ignore[arg-type]
    ranks=st.integers(1, 64),
    duration_ns=st.integers(1, 10**15),
    groups=st.lists(
        st.builds(
            ErrorGroup,
            name=TEXT,
            median_error=ERROR,
            typical_error=ERROR,
            worst_error=ERROR,
            spread=ERROR,
            least_bytes=SIZE,
            most_bytes=SIZE,
        ),
        max_size=3,
    ).map(tuple),
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    gpus = draw(st.integers(1, 16))
    per: Any = draw(st.sampled_from(["gpu", "host"]))
    link = Link(bytes_per_s=draw(RATE), latency_ns=draw(TIME), burst_bytes=draw(st.just(0) | SIZE))
    nics = Nics(
        per=per,
        count=gpus if per == "gpu" else draw(st.integers(1, 8)),
        link=link,
        connection_bytes_per_s=draw(st.none() | RATE),
        window_bytes=draw(st.none() | SIZE),
    )  # type: ignore[arg-type]
    host = Host(
        gpus=gpus,
        gpu=draw(GPUS),
        inside=draw(INSIDES),
        nics=nics,
        cores=draw(st.integers(1, 256)),
        memory_bytes=draw(SIZE),
    )
    return Cluster(
        profile="mine",
        hosts=1,
        host=host,
        network=draw(NETWORKS),
        payload_share=draw(st.floats(0.01, 1.0)),
        nccl_efficiency=draw(st.floats(0.01, 1.0)),
        nccl_start_ns=draw(TIME),
        nccl_floor_ns=draw(TIME),
        nccl_p2p_share=draw(st.floats(0.01, 1.0)),
        core_bytes_per_s=draw(st.none() | RATE),
        tcp=draw(st.none() | TCPS),
        hosts_share_cores=draw(st.booleans()),
    )


REMARKS = st.dictionaries(st.sampled_from(["", "cluster", "cluster.gpu", "cluster.nic", "cluster.tcp"]), TEXT_LINES)


@examples(50)
@given(clusters(), MEASURED, TEXT, REMARKS)
def test_written_profile_reads_back_equal(
    cluster: Cluster, measured: Measured, description: str, remarks: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.toml"
        path.write_text(profile_text(cluster, measured, description, remarks), encoding="utf-8", newline="")
        assert load_profile(str(path)) == cluster
        assert load_measured(str(path)) == measured
        assert read_toml(str(path))["description"] == description


def test_quantities_have_the_largest_fitting_unit(tmp_path: Path) -> None:
    link = Link(bytes_per_s=1.25e9, latency_ns=12_500)
    gpu = Gpu(
        name="core", kind="cpu", memory_bytes=3 << 29, memory_bytes_per_s=1.812e10, flops_per_s={"float32": 1.5e11}
    )
    host = Host(
        gpus=2,
        gpu=gpu,
        inside=Inside(kind="nvlink", link=link),
        nics=Nics(per="host", count=1, link=link),
        cores=2,
        memory_bytes=4 << 30,
    )
    cluster = Cluster(profile="mine", hosts=1, host=host, network=Network(kind="non_blocking"))
    lines = profile_text(cluster, describe_measurement("command", 2, time.monotonic(), ()), "Mine").splitlines()
    for line in (
        'host_memory = "4 GiB"',
        'memory = "1536 MiB"',
        'memory_rate = "18.12 GB/s"',
        'float32 = "150 GFLOP/s"',
        'rate = "1.25 GB/s"',
        'latency = "12.5 us"',
        'latency = "0 ns"',
    ):
        assert line in lines


def test_remarks_precede_their_tables(tmp_path: Path) -> None:
    cluster = load_profile("cpu_local")
    measured = describe_measurement("command", 2, time.monotonic(), ())
    remarks = {"": "Of\nall.", "cluster.nic": "Not measured."}
    lines = profile_text(cluster, measured, "Mine", remarks).splitlines()
    assert lines[2:4] == ["# Of", "# all."]
    assert lines[lines.index("[cluster.nic]") - 1] == "# Not measured."
    assert [line for line in lines if line.startswith("#")] == ["# Of", "# all.", "# Not measured."]


def test_cpu_name_is_the_kernels_or_the_architecture(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A fast one\nmodel name\t: A slow one\n")
    assert cpu_name(tmp_path / "cpuinfo") == "A fast one"
    assert cpu_name(tmp_path / "none") != ""
    assert describe_measurement("c", 1, time.monotonic() - 2, ()).duration_ns >= 2 * 10**9
