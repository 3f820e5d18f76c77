"""Commands `python -m real emulate up|status|down|exec`: creates, lists, removes and enters emulated hosts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

from real.emulate import netns
from real.emulate.cluster import (
    EmulatedHosts,
    InterfaceTraffic,
    clusters,
    down,
    emulate_hosts,
    find,
    sweep,
    traffic,
    up,
)
from real.emulate.fabric import LEAST_BURST_BYTES, MOST_HOSTS, EmulatedFabric, control_address, data_address, fabric_of
from real.emulate.ip_tc import burst_of
from real.emulate.netns import EmulationError
from real.launch.launcher import Hosts
from real.machine import cores
from scenarios.config.load import load
from scenarios.config.scenario import Scenario
from scenarios.config.units import format_bytes, format_rate, parse_rate, parse_size
from scenarios.seam.errors import ScenarioError

# tc's own spelling, such as 200mbit, where bps are bytes. tc reads a bare number as bits; here it is refused.
_TC_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(i?)(bit|bps)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
# `python -m benchmarks.emulated --nic 1gbit`, 2 hosts on 2 cores: 85 to 93 % of the rate, and less of higher rates.
_BYTES_PER_S_OF_A_CORE = 125e6


def emulate(arguments: Sequence[str], prog: str = "python -m real emulate") -> int:
    """Run a subcommand; return 0, 2 for a mistake or a missing tool, or the exit code of `exec`'s command."""
    options = _parser(prog).parse_args(arguments)
    try:
        netns.check_able()
        say(sweep())
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of stdout has closed it, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2


def say(sentences: Iterable[str]) -> None:
    """Print sentences on stderr, one per line."""
    for sentence in sentences:
        print(sentence, file=sys.stderr)


def say_once() -> Callable[[Iterable[str]], None]:
    """Return a function that prints sentences on stderr, none of them twice."""
    said: set[str] = set()

    def tell(sentences: Iterable[str]) -> None:
        new = [sentence for sentence in sentences if sentence not in said]
        said.update(new)
        say(new)

    return tell


def running_hosts(name: str, fabric: EmulatedFabric) -> EmulatedHosts:
    """Return the emulated hosts that are up under a name, for a scenario of that fabric.

    Raises:
        EmulationError: no hosts of that name are up, or too few.
    """
    hosts = find(name)
    if hosts.fabric.hosts < fabric.hosts:
        raise EmulationError(f"--emulate = '{name}': has {hosts.fabric.hosts} hosts; expected at least {fabric.hosts}")
    say(differences(name, hosts.fabric, fabric))
    return hosts


def differences(name: str, up: EmulatedFabric, wanted: EmulatedFabric) -> list[str]:
    """Return a sentence where hosts that are up have other links than a scenario's.

    More hosts are no difference, nor is a burst that the scenario leaves open.
    """
    if wanted.burst_bytes is None:
        up = dataclasses.replace(up, burst_bytes=None)
    else:
        up = dataclasses.replace(up, burst_bytes=up.burst_bytes or burst_of(up.nic_bytes_per_s))
    if dataclasses.replace(up, hosts=wanted.hosts) == wanted:
        return []
    return [f"emulated hosts '{name}' have {_describe(up)}; the scenario has {_describe(wanted)}"]


def warnings(fabric: EmulatedFabric) -> list[str]:
    """Return sentences about rates that this machine may be too slow for."""
    if fabric.hosts * fabric.nic_bytes_per_s <= cores() * _BYTES_PER_S_OF_A_CORE:
        return []
    return [
        f"{fabric.hosts} hosts that all send {format_rate(fabric.nic_bytes_per_s)} may need more than the {cores()}"
        f" cores here ({format_rate(_BYTES_PER_S_OF_A_CORE)} per core was measured): the rates may not be reached"
    ]


def _up(options: argparse.Namespace) -> int:
    fabric = _fabric(options)
    say(warnings(fabric))
    hosts = up(fabric)
    if options.quiet:
        print(hosts.name)
        return 0
    print(f"{hosts.name}: {_describe(fabric)}")
    print(f"  twinstep run SCENARIO --emulate {hosts.name}")
    print(f"  twinstep emulate exec {hosts.name} 0 -- COMMAND")
    print(f"  twinstep emulate down {hosts.name}")
    return 0


def _status(options: argparse.Namespace) -> int:
    running = [(hosts, traffic(hosts)) for hosts in clusters()]
    if options.json:
        print(json.dumps([_as_json(hosts, rows) for hosts, rows in running], indent=1))
        return 0
    for hosts, rows in running:
        owner = "stays until it is taken down" if hosts.owner is None else f"ends with process {hosts.owner.pid}"
        print(f"{hosts.name}: {_describe(hosts.fabric)}; {owner}")
        print(f"  host0 is {data_address(0)}, and so on; for control {control_address(0)}")
        for row in rows:
            sent = f"{format_bytes(row.sent_bytes)} sent, {row.dropped_packets} packets dropped"
            print(f"  {row.source} -> {row.target}: {format_rate(row.bytes_per_s)}, {sent}")
    if not running:
        print("no emulated hosts are up")
    return 0


def _down(options: argparse.Namespace) -> int:
    if (options.name is None) == (not options.all):
        raise EmulationError("emulate down: expected a name or --all")
    staying = [hosts for hosts in clusters() if hosts.owner is None]  # the others belong to running measurements
    for hosts in staying if options.all else [find(options.name)]:
        down(hosts)
    return 0


def _exec(options: argparse.Namespace) -> int:
    """Replace this process by the command, on the given host."""
    hosts = find(options.name)
    if not 0 <= options.host < hosts.fabric.hosts:
        raise EmulationError(f"HOST = {options.host}: expected 0 to {hosts.fabric.hosts - 1}")
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise EmulationError("emulate exec: expected a command")
    with hosts.host(options.host):
        try:
            os.execvpe(command[0], command, {**hosts.environment, **os.environ})
        except OSError as error:
            raise EmulationError(f"emulate exec: '{command[0]}': {error.strerror}") from error


def _fabric(options: argparse.Namespace) -> EmulatedFabric:
    burst = _burst(options.burst)
    if options.scenario is not None:
        clashing = [name for name in ("hosts", "nic", "hosts_per_leaf", "uplink") if getattr(options, name) is not None]
        if clashing:
            raise EmulationError(
                f"--{clashing[0].replace('_', '-')}: expected without a scenario, which says it itself"
            )
        return fabric_of(load(options.scenario), burst)
    if options.hosts is None or options.nic is None:
        raise EmulationError("emulate up: expected a scenario, or --hosts and --nic")
    if (options.hosts_per_leaf is None) != (options.uplink is None):
        raise EmulationError("emulate up: expected --hosts-per-leaf and --uplink together")
    return EmulatedFabric(
        hosts=_count("hosts", options.hosts),
        nic_bytes_per_s=read_rate("nic", options.nic),
        hosts_per_leaf=None if options.hosts_per_leaf is None else _count("hosts-per-leaf", options.hosts_per_leaf),
        uplink_bytes_per_s=None if options.uplink is None else read_rate("uplink", options.uplink),
        burst_bytes=burst,
    )


def _count(option: str, number: int) -> int:
    if not 1 <= number <= MOST_HOSTS:
        raise EmulationError(f"--{option} = {number}: expected 1 to {MOST_HOSTS}")
    return number


def read_rate(option: str, text: str) -> float:
    """Return the bytes per second of a rate as tc writes it (200mbit) or as scenarios do ("200 Mbit/s").

    Raises:
        EmulationError: the text is no rate, or a rate below 1 byte/s.
    """
    match = _TC_RATE.fullmatch(text.strip())
    try:
        bytes_per_s = _tc_rate(*match.groups()) if match else parse_rate(text)
    except ValueError:
        bytes_per_s = 0
    if bytes_per_s < 1:
        raise EmulationError(f"--{option} = '{text}': expected a rate such as '200mbit' or '200 Mbit/s'")
    return bytes_per_s


def _tc_rate(number: str, prefix: str, binary: str, unit: str) -> float:
    factor = (1024 if binary else 1000) ** _POWERS[prefix.lower()]
    return float(Fraction(number) * factor / (8 if unit.lower() == "bit" else 1))


def _burst(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size_bytes = parse_size(text)
    except ValueError:
        size_bytes = 0
    if size_bytes < LEAST_BURST_BYTES:
        raise EmulationError(f"--burst = '{text}': expected a size of at least 2 KiB, such as '16 KiB'")
    return size_bytes


def _describe(fabric: EmulatedFabric) -> str:
    burst = "" if fabric.burst_bytes is None else f" with a burst of {format_bytes(fabric.burst_bytes)}"
    text = f"{fabric.hosts} hosts at {format_rate(fabric.nic_bytes_per_s)} a direction{burst}"
    if fabric.uplink_bytes_per_s is None:
        return text
    return f"{text}, {fabric.hosts_per_leaf} a leaf, uplinks at {format_rate(fabric.uplink_bytes_per_s)}"


def _as_json(hosts: EmulatedHosts, rows: list[InterfaceTraffic]) -> dict[str, Any]:
    indices = range(hosts.fabric.hosts)
    return {
        "name": hosts.name,
        "owner": None if hosts.owner is None else hosts.owner.pid,
        **dataclasses.asdict(hosts.fabric),
        "addresses": [str(data_address(host)) for host in indices],
        "control_addresses": [str(control_address(host)) for host in indices],
        "namespaces": [hosts.namespace(f"host{host}") for host in indices],
        "links": [dataclasses.asdict(row) for row in rows],
    }


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Emulate hosts as network namespaces of this machine, joined by rate-limited links. Needs root.",
    )
    commands = parser.add_subparsers(required=True, metavar="up|status|down|exec")
    make = commands.add_parser("up", help="create emulated hosts that stay up until 'down' removes them")
    make.add_argument("scenario", type=Path, nargs="?", help="scenario whose cluster is emulated")
    make.add_argument("--hosts", type=int, metavar="N", help="number of hosts, without a scenario")
    make.add_argument(
        "--nic", metavar="RATE", help="rate of each host in each direction, such as 200mbit or '200 Mbit/s'"
    )
    make.add_argument(
        "--hosts-per-leaf", type=int, metavar="N", help="hosts per leaf switch below a spine (default: one switch)"
    )
    make.add_argument("--uplink", metavar="RATE", help="rate of each leaf switch's uplink in each direction")
    make.add_argument(
        "--burst",
        metavar="SIZE",
        help="bytes that an idle interface may send at once (default: 250 us of its rate, at least 16 KiB)",
    )
    make.add_argument("--quiet", action="store_true", help="print only the hosts' name")
    make.set_defaults(run=_up)
    status = commands.add_parser("status", help="list emulated hosts, with bytes and dropped packets of each link")
    status.add_argument("--json", action="store_true", help="print all hosts and links as JSON")
    status.set_defaults(run=_status)
    end = commands.add_parser("down", help="remove emulated hosts and end their processes")
    end.add_argument("name", nargs="?", help="name of the hosts, as 'up' printed it")
    end.add_argument("--all", action="store_true", help="remove all hosts that 'up' created")
    end.set_defaults(run=_down)
    inside = commands.add_parser("exec", help="run a command on one emulated host")
    inside.add_argument("name", help="name of the hosts, as 'up' printed it")
    inside.add_argument("host", type=int, help="number of the host, from 0")
    inside.add_argument("command", nargs=argparse.REMAINDER, help="command, after --")
    inside.set_defaults(run=_exec)
    return parser


def hosts_of(fabric: EmulatedFabric | None) -> AbstractContextManager[Hosts]:
    """Return a context in which hosts of that fabric are emulated; without a fabric, this machine."""
    return nullcontext(Hosts()) if fabric is None else emulate_hosts(fabric)


@contextmanager
def hosts_for(scenario: Scenario, name: str | None, tell: Callable[[Iterable[str]], None] = say) -> Iterator[Hosts]:
    """Yield the hosts of a run. `name` is --emulate's: None if not given, "" if given without one; `tell` gets
    warnings.

    Raises:
        ScenarioError: the scenario's hosts cannot be emulated, or no hosts of that name are up.
    """
    if name is None:
        yield Hosts()
        return
    fabric = fabric_of(scenario)
    tell(sweep())
    if name:
        yield running_hosts(name, fabric)
        return
    tell(warnings(fabric))
    with emulate_hosts(fabric) as hosts:
        yield hosts
