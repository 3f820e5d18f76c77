"""Command `python -m real calibrate`: runs micro-benchmarks and writes the profile that fits them."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import pandas as pd

from real.calibration import program_cost as program
from real.calibration.kernels import probes as kernels
from real.calibration.kernels.fit import fit as fit_kernels
from real.calibration.kernels.fit import group_of
from real.calibration.kernels.fit import observe as observe_kernels
from real.calibration.network import crowded_cores as crowd
from real.calibration.network import probes as network
from real.calibration.network.fit import Residual, Sight, observe
from real.calibration.network.fit import fit as fit_network
from real.calibration.play import play as play_on
from real.calibration.play import scenario_on
from real.calibration.profile import describe_measurement, profile_text
from real.emulate.cli import hosts_of, read_rate, say, warnings
from real.emulate.cluster import sweep
from real.emulate.fabric import MOST_HOSTS, EmulatedFabric
from real.emulate.ip_tc import burst_of
from real.machine import cores, cpu_name
from reports.sections.calibration import CalibrationView
from reports.terminal import text
from scenarios.config.hardware import Cluster, Link, Nics
from scenarios.config.load import load_profile
from scenarios.config.provenance import ErrorGroup
from scenarios.config.scenario import Scenario
from scenarios.progress_line import ProgressLine
from scenarios.seam.errors import ScenarioError
from scenarios.seam.program import Program
from scenarios.seam.trace import Recording, Span
from scenarios.workloads.dlrm.program import DlrmProgram
from scenarios.workloads.script.command import split_at_script
from twinstep.calibration.host import calibrate_host, check_host
from twinstep.calibration.kernels import calibrate_kernels, check_kernels
from twinstep.calibration.operators import calibrate_operators, check_operators
from twinstep.calibration.telling import tell

Simulate = Callable[[Scenario, Program, int], Recording]

# The profile whose figures start the fit, and stay where nothing is measured.
_LIKE = "cpu_local"
# An Ethernet frame of 1514 bytes has 1448 bytes of TCP payload: the starting value of the fit.
_PAYLOAD_SHARE = 1448 / 1514
# Cores that other processes may use before the figures count as disturbed.
_BUSY_CORES = 0.1
# Launches in order: the kernels are measured in several launches at different times.
_PLAYED = ("kernels", "network", "kernels", "program", "kernels")
PROGRAMS = {
    "kernels": "real.calibration.kernels.probes:DeviceProbes",
    "network": "real.calibration.network.probes:NetworkProbes",
    "program": "real.calibration.program_cost:build",
    "crowd": "real.calibration.network.crowded_cores:Crowd",
}


def calibrate(arguments: Sequence[str], simulate: Simulate, prog: str = "python -m real calibrate") -> int:
    """Calibrate; return 0, or 2 after a mistake, with one sentence on stderr.

    Raises:
        RunEnded: the probes did not finish.
    """
    options, of_script = split_at_script(_parser(prog), arguments, "of")
    options.of_args = of_script
    command = f"{prog} {shlex.join(arguments)}"
    try:
        _check(options)
        if options.kernels:
            measure = calibrate_kernels if options.device is None else calibrate_operators
            measure(options, command)
            return 0
        if options.host:
            calibrate_host(options, command)
            return 0
        say(sweep())
        _calibrate(options, command, simulate)
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Measure this machine and write its profile: kernels, threads, and gloo over TCP between hosts. "
        "With --nic the hosts are emulated, which needs root and iproute2; else they use the loopback device. "
        "With --kernels, measure only kernels: of a CPU core, or of a GPU and its host if --like is a profile of GPUs. "
        "With --host, measure only the time of eager PyTorch on the host of a GPU. "
        "All other figures are then those of --like.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.toml", help="new file for the profile")
    parser.add_argument("--nic", metavar="RATE", help="rate of each emulated host's interface, such as 200mbit")
    parser.add_argument(
        "--hosts", type=int, metavar="N", help="number of hosts (default: 2, or 1 with --of and a script)"
    )
    parser.add_argument("--ranks-per-host", type=int, metavar="N", help="ranks per host (default: 1)")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--kernels", action="store_true", help="measure only kernels, on one host")
    alone.add_argument("--host", action="store_true", help="measure only the time of eager PyTorch on a GPU's host")
    parser.add_argument(
        "--like", metavar="PROFILE", help="with --kernels or --host: profile of all other figures, such as dgx_h100"
    )
    of_gpu = parser.add_argument_group("operators of a GPU, with --kernels and a profile of GPUs")
    of_gpu.add_argument(
        "--of",
        type=Path,
        metavar="RUN",
        help="measure only the operators of a scenario (file or name), a script (.py, last, with its own arguments), a"
        " recording or a run folder, the longest first (default: operators that are common in training)",
    )
    of_gpu.add_argument(
        "--seconds", type=float, metavar="N", help="time for measuring operators, in seconds (default: 60)"
    )
    of_gpu.add_argument("--device", choices=("cuda", "cpu"), help="cpu: rehearse on this machine's CPU (default: cuda)")
    parser.add_argument("--json", action="store_true", help="print the residuals of all probes as JSON")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no residuals")
    return parser


def _check(options: argparse.Namespace) -> None:
    if options.out.suffix != ".toml":
        raise ScenarioError(f"--out = '{options.out}': expected a path that ends in .toml")
    if options.out.exists():
        raise ScenarioError(f"{options.out} already exists: choose another --out")
    if not options.out.parent.is_dir():
        raise ScenarioError(f"--out = '{options.out}': expected a folder that exists")
    if options.kernels or options.host:
        _check_alone(options)
        return
    _refuse_of_gpu(options)
    if options.like is not None:
        raise ScenarioError(f"--like = '{options.like}': expected with --kernels or --host")
    options.hosts = 2 if options.hosts is None else options.hosts
    options.ranks_per_host = 1 if options.ranks_per_host is None else options.ranks_per_host
    if not 2 <= options.hosts <= MOST_HOSTS:
        raise ScenarioError(f"--hosts = {options.hosts}: expected 2 to {MOST_HOSTS}")
    most = 4 * cores()
    if not 1 <= options.ranks_per_host <= most:
        raise ScenarioError(f"--ranks-per-host = {options.ranks_per_host}: expected 1 to {most}, four for each core")


def _check_alone(options: argparse.Namespace) -> None:
    """Refuse options that do not fit --kernels or --host.

    Raises:
        ScenarioError: in one sentence.
    """
    flag = "--host" if options.host else "--kernels"
    if options.nic is not None:
        raise ScenarioError(f"--nic = {options.nic}: expected without {flag}, which measures no network")
    if options.like is None:
        raise ScenarioError(f"--like: missing; expected a profile such as 'dgx_h100' with {flag}")
    like = load_profile(options.like)
    if options.kernels and like.host.gpu.device.is_launched:
        options.device = options.device or "cuda"
        check_operators(options, like)
        return
    _refuse_of_gpu(options)
    if options.hosts is not None:
        raise ScenarioError(f"--hosts = {options.hosts}: expected without {flag}, which measures no network")
    options.ranks_per_host = 1 if options.ranks_per_host is None else options.ranks_per_host
    check = check_host if options.host else check_kernels
    check(options, like)


def _refuse_of_gpu(options: argparse.Namespace) -> None:
    for name, value in (("of", options.of), ("seconds", options.seconds), ("device", options.device)):
        if value is not None:
            raise ScenarioError(f"--{name} = {value}: expected with --kernels and a profile of GPUs")


def _calibrate(options: argparse.Namespace, command: str, simulate: Simulate) -> None:
    began_s = time.monotonic()
    fabric = None
    if options.nic is not None:
        fabric = EmulatedFabric(hosts=options.hosts, nic_bytes_per_s=read_rate("nic", options.nic))
        say(warnings(fabric))
    if fabric is None:
        cluster = nominal(options.hosts, options.ranks_per_host, None)
    else:
        rate = fabric.nic_bytes_per_s
        cluster = nominal(options.hosts, options.ranks_per_host, rate, burst_of(rate))

    def play(candidate: Cluster) -> Sight:
        scenario = scenario_on(candidate, "probes")
        probes = network.schedule(candidate, 2)
        return observe(probes, simulate(scenario, network.NetworkProbes(scenario, 2), 0).spans)

    with hosts_of(fabric) as hosts, ProgressLine(quiet=options.quiet, ticks=True) as bar:
        played: dict[str, list[Recording]] = defaultdict(list)
        for what in _PLAYED:
            scenario = scenario_on(cluster, what, steps=kernels.ROUNDS)
            run = play_on(bar, scenario, PROGRAMS[what], hosts, steps=_steps(cluster)[what])
            played[what].append(run)
    kernel_fit = fit_kernels(observe_kernels(one.spans for one in played["kernels"]), cluster.host.gpu)
    cluster = dataclasses.replace(cluster, host=dataclasses.replace(cluster.host, gpu=kernel_fit.gpu))
    (networked,), (worked,) = played["network"], played["program"]
    sight = observe(network.schedule(cluster), networked.spans, networked.metrics)
    # Kernels are fitted first: the network's and the program's fits simulate with their times.
    _warn_if_busy(sight)
    crowded = _play_crowd(cluster, fabric, options.quiet) if cluster.hosts_share_cores else None
    with ProgressLine(quiet=options.quiet, ticks=True) as bar:
        bar.show("fitting")
        barrier_s = None if crowded is None else crowd.barrier_s(crowded.metrics)
        cluster, residuals = fit_network(cluster, sight, play, barrier_s)
        cluster = _fit_program(cluster, worked.spans, simulate)
        if crowded is not None:
            cluster = _fit_crowd(cluster, crowded, simulate)
    ranks = cluster.world_size
    measured = describe_measurement(command, ranks, began_s, [*kernel_fit.groups, _network_group(residuals)])
    where = f"emulated at {options.nic}" if fabric else "over the loopback device"
    description = f"{options.hosts} hosts of {options.ranks_per_host} on one machine, {where}; calibrated"
    options.out.write_text(profile_text(cluster, measured, description), encoding="utf-8")
    tell(_view(residuals), options)


def _fit_program(cluster: Cluster, worked: Iterable[Span], simulate: Simulate) -> Cluster:
    # A prediction in which Python costs nothing: what the real program takes beyond it is the verbs' price.
    bare = program.scenario_of(scenario_on(program.alone(cluster), "program"))
    alone = simulate(bare, DlrmProgram(bare), 0).spans
    assert cluster.tcp is not None, "the network's fit says it"
    return dataclasses.replace(cluster, tcp=program.fit(cluster.tcp, worked, alone))


def _crowd_of(cluster: Cluster) -> Cluster:
    """Return a cluster of one-rank hosts, at least two for each core."""
    # With fewer ranks no thread would have to wait for a core that another one spins on.
    hosts = max(cluster.hosts, 2 * cluster.host.cores)
    return dataclasses.replace(cluster, hosts=hosts, host=dataclasses.replace(cluster.host, gpus=1))


def _play_crowd(cluster: Cluster, fabric: EmulatedFabric | None, quiet: bool) -> Recording:
    crowded = _crowd_of(cluster)
    wider = None if fabric is None else dataclasses.replace(fabric, hosts=crowded.hosts)
    with hosts_of(wider) as on, ProgressLine(quiet=quiet, ticks=True) as bar:
        return play_on(bar, scenario_on(crowded, "crowd"), PROGRAMS["crowd"], on, steps=None)


def _fit_crowd(cluster: Cluster, recording: Recording, simulate: Simulate) -> Cluster:
    def play(candidate: Cluster) -> crowd.Typical:
        scenario = scenario_on(candidate, "crowd")
        return crowd.typical(simulate(scenario, crowd.Crowd(scenario, crowd.PLAYED), 1).spans, crowd.PLAYED)

    tcp = crowd.fit(_crowd_of(cluster), crowd.typical(recording.spans), play).tcp
    return dataclasses.replace(cluster, tcp=tcp)


def nominal(hosts: int, ranks_per_host: int, nic_bytes_per_s: float | None, burst_bytes: int = 0) -> Cluster:
    """Return this machine's cores and memory, shared by the hosts, before any measurement.

    `nic_bytes_per_s` and `burst_bytes` are of an emulated host's interface; None: the network is the loopback device.
    """
    like = load_profile(_LIKE)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // hosts
    link = like.host.nics.link
    if nic_bytes_per_s is not None:
        link = Link(bytes_per_s=nic_bytes_per_s, latency_ns=link.latency_ns, burst_bytes=burst_bytes)
    gpu = dataclasses.replace(
        like.host.gpu, name=f"a core of {cpu_name()}", memory_bytes=memory_bytes // ranks_per_host
    )
    host = dataclasses.replace(
        like.host,
        gpus=ranks_per_host,
        gpu=gpu,
        nics=Nics(per="host", count=1, link=link),
        cores=cores(),
        memory_bytes=memory_bytes,
    )
    share = 1.0 if nic_bytes_per_s is None else _PAYLOAD_SHARE
    return dataclasses.replace(like, hosts=hosts, host=host, payload_share=share, tcp=None, hosts_share_cores=True)


def _steps(cluster: Cluster) -> dict[str, int]:
    """Return the number of steps of each program of probes."""
    return {
        "kernels": kernels.WARM_UP + kernels.ROUNDS,
        "network": sum(probe.repeats for probe in network.schedule(cluster)),
        "program": program.STEPS,
    }


def _warn_if_busy(sight: Sight) -> None:
    busy = median(sight["idle", 0].parts_s["busy_cores/0"])
    if busy > _BUSY_CORES:
        say([f"other processes kept {busy:.1f} cores of this machine busy: the figures are less reliable"])


def _network_group(residuals: Sequence[Residual]) -> ErrorGroup:
    sizes = [row.size_bytes for row in residuals if row.size_bytes]
    spreads = [(row.high_s - row.low_s) / row.measured_s for row in residuals]
    return group_of("gloo over TCP", [row.error for row in residuals], spreads, sizes)


def _view(residuals: Sequence[Residual]) -> CalibrationView:
    probes = pd.DataFrame([{**dataclasses.asdict(row), "error": row.error} for row in residuals])
    in_ns = {f"{name}_ns": 1e9 * probes[f"{name}_s"] for name in ("measured", "predicted")}
    ranges = [text.interval(1e9 * row.low_s, 1e9 * row.high_s) for row in residuals]
    shown = probes.assign(**in_ns, range=ranges)
    return CalibrationView(data={"probes": probes}, tables={"probes": shown})
