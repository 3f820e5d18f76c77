"""SimGrid's flow model on our platforms, playing gloo's messages; the simulation itself is `simgrid_engine`'s.

    python -m benchmarks.baselines.simgrid_flows --check

SimGrid (https://simgrid.org, 4.1) stands in .venv-benchmarks, where `make benchmarks` puts it; it is compiled there,
with cmake, a C++ compiler and Boost's headers (Debian's libboost-dev), in about five minutes on two cores. It runs in a
process of its own, so that it can be asked from any interpreter.

A rank's data crosses the same links at the same rates as in our simulator, every message of the same scripts is a flow,
and sums and copies take what they take in our simulator. The variants are what its users do with it:

- "LV08": its default model of TCP. Latencies times 13.01, rates times 0.97, and what goes back takes 5 % of a flow
  (network_cm02.cpp of 4.1, after Velho, Schnorr, Casanova, Legrand, INRIA's report RR-7821, 2011).
- "factors 1": the same without these two factors.
- "fitted": factors of 1, and the latency and the rate that the measured messages have: those of the alpha-beta model.
  Where a receive is posted before, a message is one latency, and a path has alpha; where both ends are
  posted at once, the receiver's notice travels first, and a path has "alpha / 2". Both kinds were measured.
- "no cross-traffic": without the 5 % as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.baselines.alpha_beta import AlphaBeta
from benchmarks.baselines.cases import calls as calls_of
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.seam.calls import Call
from sim.engine.fabric import Fabric
from sim.engine.roofline import cost
from sim.gloo import algorithms as gloo
from sim.gloo.flows import local_kernel
from sim.gloo.script import (
    HEADER_BYTES,
    NOTICE_BYTES,
    Copy,
    Instruction,
    Recv,
    Reduce,
    Send,
    WaitRecv,
    WaitSend,
)

ROOT = Path(__file__).parents[2]
_FACTORS_1 = ("network/latency-factor:1", "network/bandwidth-factor:1")
_ONE_WAY = (*_FACTORS_1, "network/crosstraffic:no")


@dataclass(frozen=True, slots=True)
class Variant:
    """SimGrid's options, and where the platform is fitted, the part of alpha that a path's latency is."""

    config: tuple[str, ...]
    alpha_share: float | None = None

    def platform(self, cluster: Cluster, model: AlphaBeta) -> Cluster:
        """The cluster to predict for."""
        return cluster if self.alpha_share is None else fit(cluster, model, self.alpha_share)


VARIANTS = {
    "LV08": Variant(()),
    "factors 1": Variant(_FACTORS_1),
    "fitted, alpha / 2": Variant(_FACTORS_1, 0.5),
    "fitted, alpha": Variant(_FACTORS_1, 1.0),
    "fitted, alpha / 2, no cross-traffic": Variant(_ONE_WAY, 0.5),
    "fitted, alpha, no cross-traffic": Variant(_ONE_WAY, 1.0),
}


class AbsentError(Exception):
    """SimGrid is not installed."""


def predict(cluster: Cluster, calls: Sequence[Call], variant: str = "LV08") -> float:
    """Seconds until the last rank is through with a collective that all enter at once; see `predict_all`."""
    (seconds,) = predict_all([(cluster, calls, variant)])
    return seconds


def predict_all(asked: Sequence[tuple[Cluster, Sequence[Call], str]]) -> list[float]:
    """The same of many. For a variant that is fitted, give the cluster that its `platform` gives.

    Raises:
        AbsentError: SimGrid is not installed.
        RuntimeError: it refuses, or finds a deadlock.
    """
    given = json.dumps([problem(cluster, calls, VARIANTS[variant].config) for cluster, calls, variant in asked])
    done = subprocess.run(
        [_interpreter(), "-m", "benchmarks.baselines.simgrid_engine"],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"SimGrid: {done.stderr.strip() or f'ended with {done.returncode}'}")
    seconds: list[float] = json.loads(done.stdout)
    return seconds


def fit(cluster: Cluster, model: AlphaBeta, alpha_share: float) -> Cluster:
    """The cluster with the model's rate between hosts, and that part of its alpha as the latency of every path.

    Inside a host, where nothing was measured, it is the same latency: most of it is the hosts' own.
    """
    host, nics, inside = cluster.host, cluster.host.nics, cluster.host.inside
    latency_ns = max(2, round(model.alpha_s * alpha_share * 1e9))
    links = [dataclasses.replace(link, latency_ns=latency_ns) for link in (nics.link, inside.link)]
    links[0] = dataclasses.replace(links[0], latency_ns=latency_ns // 2)
    host = dataclasses.replace(
        host, nics=dataclasses.replace(nics, link=links[0]), inside=dataclasses.replace(inside, link=links[1])
    )
    share = 1 / (model.beta_s_per_byte * nics.link.bytes_per_s)
    network = dataclasses.replace(cluster.network, latency_ns=0)
    return dataclasses.replace(cluster, host=host, network=network, payload_share=share)


def problem(cluster: Cluster, calls: Sequence[Call], config: Sequence[str]) -> dict[str, Any]:
    """What `simgrid_engine` reads."""
    fabric, ranks = Fabric(cluster), calls[0].group.ranks
    links: dict[str, float] = {}
    routes = []
    for source, sender in enumerate(ranks):
        for target, receiver in enumerate(ranks):
            path = fabric.path(sender, receiver)
            if sender != receiver:
                links |= {link.name: link.per_s for link in path.links}
                routes.append([source, target, [link.name for link in path.links], path.latency_ns / 1e9])
    return {
        "config": list(config),
        "links": links,
        "routes": routes,
        "scripts": [[_instruction(cluster, instruction) for instruction in script] for script in gloo.schedule(calls)],
        "notice_bytes": NOTICE_BYTES,
        "header_bytes": HEADER_BYTES,
    }


def _instruction(cluster: Cluster, instruction: Instruction) -> list[Any]:
    match instruction:
        case Send(peer, size_bytes, tag):
            return ["send", peer, size_bytes, tag]
        case Recv(peer, size_bytes, tag):
            return ["recv", peer, size_bytes, tag]
        case WaitSend(peer, tag):
            return ["wait_send", peer, tag]
        case WaitRecv(peer, tag):
            return ["wait_recv", peer, tag]
        case Reduce(size_bytes):
            return ["work", _local_s(cluster, size_bytes, 0)]
        case Copy(size_bytes):
            return ["work", _local_s(cluster, 0, size_bytes)]


def _local_s(cluster: Cluster, reduced_bytes: int, copied_bytes: int) -> float:
    """Known where the host is the device; elsewhere gloo's own loops are left out, as in `sim.gloo.flows`."""
    gpu = cluster.host.gpu
    return (
        cost(local_kernel(reduced_bytes, copied_bytes), gpu).memory_bytes / gpu.memory_bytes_per_s * (gpu.kind == "cpu")
    )


def _interpreter() -> str:
    """One that has SimGrid."""
    if find_spec("simgrid") is not None:
        return sys.executable
    other = ROOT / ".venv-benchmarks" / "bin" / "python"
    if not other.exists():
        raise AbsentError(f"{other}: expected an interpreter with simgrid; `make benchmarks` installs it")
    return str(other)


def check() -> None:
    """Two cases whose times are plain arithmetic, within a hundredth.

    Raises:
        AssertionError: SimGrid says otherwise.
    """
    profile = load_profile("cpu_local")
    rate, latency_s, message, buffer = 25e6, 2e-4, 1 << 20, 8 << 20
    nics = dataclasses.replace(
        profile.host.nics, link=dataclasses.replace(profile.host.nics.link, bytes_per_s=rate, latency_ns=100_000)
    )
    host = dataclasses.replace(profile.host, gpus=1, nics=nics)
    pair, four = (dataclasses.replace(profile, hosts=hosts, host=host) for hosts in (2, 4))
    # A message is the notice's latency, its own, and its bytes; in a ring all but a rank's own share passes twice.
    one_s, ring_s = 2 * latency_s + message / rate, 2 * 3 / 4 * buffer / rate
    wanted = {
        "two hosts, 1 MiB, factors 1": (pair, calls_of("broadcast", message, 2), "factors 1", one_s),
        "two hosts, 1 MiB, LV08": (
            pair,
            calls_of("broadcast", message, 2),
            "LV08",
            2 * 13.01 * latency_s + message / rate / 0.97,
        ),
        "ring of 4 hosts, 8 MiB, no cross-traffic": (
            four,
            calls_of("all_reduce", buffer, 4),
            "fitted, alpha / 2, no cross-traffic",
            ring_s,
        ),
        "ring of 4 hosts, 8 MiB, factors 1": (four, calls_of("all_reduce", buffer, 4), "factors 1", 1.05 * ring_s),
    }
    found = predict_all([case[:3] for case in wanted.values()])
    for (name, case), seconds in zip(wanted.items(), found, strict=True):
        print(f"{name:<42} {1e3 * seconds:9.3f} ms, expected {1e3 * case[3]:9.3f} ms")
        assert abs(seconds / case[3] - 1) < 0.01, name


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baselines.simgrid_flows")
    parser.add_argument("--check", action="store_true", required=True, help="hold SimGrid against plain arithmetic")
    parser.parse_args()
    check()


if __name__ == "__main__":
    main()
