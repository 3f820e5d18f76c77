"""Turns a training script on a command line into a scenario; slow imports are inside functions."""

from __future__ import annotations

import os
import shlex
import tempfile
from argparse import SUPPRESS, Action, ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scenarios.progress_line import print_notes
from scenarios.toml_writer import toml_value
from scenarios.workloads.recording.file import NAME, read_any
from scenarios.workloads.recording.recorded import SCRIPT

if TYPE_CHECKING:
    from scenarios.config.scenario import Scenario
    from scenarios.config.toml.tree import Tree

# Whose hardware a script is predicted on where nobody says it: this machine's CPU.
PROFILE = "cpu_local"


def split_at_script(
    parser: ArgumentParser, arguments: Sequence[str], name: str = "scenario"
) -> tuple[Namespace, Sequence[str] | None]:
    """Parse the arguments up to a script's name (or a module's after -m); return the script's own, None without one.

    Only the argument or option `name` names a script: the value of another option may end in .py, too.
    """
    begin = 0
    while True:
        own, of_script = _split(arguments, begin)
        options = parser.parse_args(own)
        if of_script is None or getattr(options, "module", None) is not None:
            return options, of_script
        if Path(getattr(options, name) or "") == Path(own[-1]):
            return options, of_script
        begin = len(own)


def _split(arguments: Sequence[str], begin: int) -> tuple[Sequence[str], Sequence[str] | None]:
    for place, argument in enumerate(arguments[begin:], begin):
        if argument == "-m":
            return arguments[: place + 2], arguments[place + 2 :]
        if argument.endswith(".py"):
            return arguments[: place + 1], arguments[place + 1 :]
    return arguments, None


# Keys of [run] that the replay of a recording has from the recorded run; what others decide, the recording has.
_RUN_KEPT = frozenset({"seed", "fidelity", "library", "timeout", "compute_times"})
# How a script is played, and what tensors then have.
PLAYS = {"live": "values", "record": "sizes"}


# What a script takes in Python besides values of keys.
OF_SCRIPT = ("args", "hosts", "gpus_per_host", "play", "step_every", "traceback")

# Options of torchrun, and what says here what they do there.
_OF_TORCHRUN = {
    "--nproc-per-node --nproc_per_node": "--gpus-per-host",
    "--nnodes": "--hosts",
    "--standalone --no-python --no_python --run-path --run_path": "",
    "--node-rank --node_rank --master-addr --master_addr --master-port --master_port --local-addr --local_addr": "",
    "--rdzv-backend --rdzv_backend --rdzv-endpoint --rdzv_endpoint --rdzv-id --rdzv_id --rdzv-conf --rdzv_conf": "",
    "--max-restarts --max_restarts --monitor-interval --monitor_interval --start-method --start_method": "",
    "--log-dir --log_dir --redirects --tee --role": "",
}


class _OfTorchrun(Action):
    """An option of torchrun, which is refused with its equivalent here."""

    def __call__(self, parser: ArgumentParser, _: object, __: object, option: str | None = None) -> None:
        instead = f"expected {self.const}" if self.const else "expected none, as all ranks are started here"
        parser.error(f"{option} is torchrun's: {instead} (twinstep docs scripts)")


def add_options(parser: ArgumentParser, *, plays: bool = False) -> None:
    """Add the options that only a script has, which names no cluster; with `plays` also `--play`."""
    of_script = parser.add_argument_group("options for scripts, given before the script")
    of_script.add_argument("--hosts", type=int, metavar="N", help="number of hosts (default: 1)")
    of_script.add_argument("--gpus-per-host", type=int, metavar="M", help="ranks per host (default: the profile's)")
    of_script.add_argument(
        "--step-every",
        metavar="WORD",
        help="what ends a step: optimizer (default), backward, forward (for scripts that do not train), once (for"
        " scripts that make one step), or a collective such as all_reduce. backward:4 counts every fourth one. A script"
        " can call twinstep.step() instead.",
    )
    of_script.add_argument(
        "-m", dest="module", metavar="MODULE", help="run a module as a script, as python -m does; its arguments follow"
    )
    for names, instead in _OF_TORCHRUN.items():
        of_script.add_argument(*names.split(), nargs="?", action=_OfTorchrun, const=instead, help=SUPPRESS)
    of_script.add_argument("--traceback", action="store_true", help="show the full traceback of an error in the script")
    if plays:
        of_script.add_argument(
            "--play",
            choices=PLAYS,
            help="live: compute all values; record: tensors only have sizes (default: record with a profile of GPUs,"
            " else live)",
        )


def parse(parser: ArgumentParser, arguments: Sequence[str]) -> tuple[Namespace, Sequence[str] | None]:
    """Split arguments as `split_at_script` does; a module's `scenario` is the file that Python runs for it."""
    from scenarios.workloads.script.config import file_of_module  # noqa: PLC0415

    options, of_script = split_at_script(parser, arguments)
    if (options.module is None) == (options.scenario is None):
        parser.error("expected a scenario, a script (.py) or -m and a module, and one of them")
    if options.module is not None:
        options.scenario = file_of_module(options.module)
        if options.scenario is None:
            parser.error(f"-m {options.module}: expected a module that Python finds in {os.getcwd()} or installed")
    return options, of_script


def load_given(
    given: Path,
    overrides: Mapping[str, object],
    *,
    args: Sequence[str] | None = None,
    hosts: int | None = None,
    gpus_per_host: int | None = None,
    play: str | None = None,
    step_every: str | None = None,
    traceback: bool = False,
    module: str = "",
    overrides_file: str = "",
) -> Scenario:
    """Load a command's scenario: from a scenario's file or name, a script with its arguments, or a script's run
    folder. With a `module`, a script is what `python -m` runs.

    Raises:
        ScenarioError: as `load` does, of which `overrides` and `overrides_file` are.
    """
    from scenarios.config.load import load  # noqa: PLC0415
    from scenarios.seam.errors import ScenarioError  # noqa: PLC0415

    if given.suffix == ".py":
        if play is not None and overrides.get("payload") not in (None, PLAYS[play]):
            raise ScenarioError(f"--payload = '{overrides['payload']}': expected '{PLAYS[play]}' with --play {play}")
        of_keys = {
            "payload": None if play is None else PLAYS[play],
            "script.step_every": step_every,
            "script.traceback": traceback or None,
            "script.module": module or None,
        }
        values = {**overrides, **{key: value for key, value in of_keys.items() if value is not None}}
        return _load_script(given, args or (), values, hosts, gpus_per_host, overrides_file)
    if play is not None:
        raise ScenarioError(f"--play = {play}: expected a script; a scenario says run.payload = '{PLAYS[play]}'")
    options = {"hosts": hosts, "gpus-per-host": gpus_per_host, "step-every": step_every}
    for name, value in options.items():
        if value is not None:
            raise ScenarioError(f"--{name}: expected a script (a .py file) with it, but {given} is none")
    if os.path.isfile(given / NAME):
        tables, script = _of_recording(given, overrides.get("profile") or overrides.get("cluster.profile"))
        return _load_tables(tables, given, Path(script).stem, overrides, overrides_file)
    return load(given, overrides, overrides_file=overrides_file)


def _load_script(
    script: Path,
    args: Sequence[str],
    values: Mapping[str, object],
    hosts: int | None,
    gpus_per_host: int | None,
    overrides_file: str,
) -> Scenario:
    """Return the scenario of a script, marked if its hardware is the default.

    Print a note if options of the command (such as `--hosts`) stand behind the script, which got them instead.
    """
    from scenarios.workloads.script.config import Script  # noqa: PLC0415

    given_here = {"--hosts": hosts, "--gpus-per-host": gpus_per_host, "--profile": values.get("profile")}
    _say_what_is_the_scripts(script, [name for name, value in given_here.items() if value is None], args)
    tables = _of_script(script, args, values.get("profile"), hosts, gpus_per_host)
    name = str(values.get("script.module") or script.stem).rpartition(".")[2]
    made = _load_tables(tables, script, name, values, overrides_file)
    if any(values.get(key) is not None for key in ("profile", "cluster.profile")):
        return made
    assert isinstance(made.options, Script)
    return made.with_workload(options=replace(made.options, is_on_default=True))


def is_script(given: Path) -> bool:
    """Return whether a path is a script or a script's run folder, not a scenario's file or name."""
    return given.suffix == ".py" or os.path.isfile(given / NAME)


def tree_given(given: Path, overrides: Mapping[str, object], scenario: Scenario) -> Tree:
    """Return the TOML keys, with the profile's, of the scenario that `load_given` made; of a script, its cluster's."""
    from scenarios.config.catalogue import scenario_file  # noqa: PLC0415
    from scenarios.config.overrides.overrides import Overrides  # noqa: PLC0415
    from scenarios.config.toml.include import read_tree  # noqa: PLC0415

    if not is_script(given):
        return read_tree(scenario_file(given), Overrides(overrides)).tree
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cluster.toml")
        lines = _lines({"program": SCRIPT, "cluster": scenario.own_keys["cluster"]})
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return read_tree(str(file)).tree


def _say_what_is_the_scripts(script: Path, missing: Sequence[str], args: Sequence[str]) -> None:
    """Print a note if options that a command misses stand after the script, with the words in their right order."""
    found = [at for at, word in enumerate(args) if word in missing]
    if found:
        ours = [word for at in found for word in args[at : at + 2]]
        theirs = [word for at, word in enumerate(args) if not {at, at - 1} & {*found}]
        names, typed = " and ".join(args[at] for at in found), shlex.join([*ours, str(script), *theirs])
        print_notes([f"{names} after the script: the script gets what follows it; expected {typed}"])


def lines_of(given: Path, profile: object = None) -> list[str]:
    """Return a scenario file's lines for a script without arguments on one host, or for a run folder.

    Another `profile` than the recorded one replaces all keys of the recorded cluster but its size.

    Raises:
        ScenarioError: the recording cannot be read.
    """
    return _lines(_of_script(given) if given.suffix == ".py" else _of_recording(given, profile)[0])


def _of_script(
    script: Path,
    args: Sequence[str] = (),
    profile: object = None,
    hosts: int | None = None,
    gpus_per_host: int | None = None,
) -> dict[str, Any]:
    cluster = {"profile": profile or PROFILE, "hosts": 1 if hosts is None else hosts}
    if gpus_per_host is not None:
        cluster["gpus_per_host"] = gpus_per_host
    return {"program": SCRIPT, "cluster": cluster, "script": {"path": os.path.abspath(script), "args": args}}


def _of_recording(folder: Path, profile: object = None) -> tuple[dict[str, Any], str]:
    """Return the tables of a scenario that simulates a run folder's recording, and the path of the recorded script
    (of another program its name).
    """
    from scenarios.seam.errors import ScenarioError  # noqa: PLC0415

    try:
        recorded = read_any(folder / NAME)
    except ValueError as error:
        raise ScenarioError(f"{folder}: expected {error}") from None
    is_script = recorded.program == SCRIPT
    program, key = (SCRIPT, "recording") if is_script else ("recording", "file")
    own, run = (recorded.keys.get(table, {}) for table in ("cluster", "run"))
    own = own or {"profile": recorded.profile}
    of_hardware = own if profile in (None, own.get("profile")) else {"profile": profile}
    size = {"hosts": recorded.hosts, "gpus_per_host": recorded.gpus_per_host}
    of_run = {name: value for name, value in run.items() if name in _RUN_KEPT}
    tables = {"cluster": of_hardware | size, "run": of_run | {"steps": recorded.steps}}
    return {"program": program, **tables, program: {key: os.path.abspath(folder)}}, recorded.script


def _lines(tables: Mapping[str, Any]) -> list[str]:
    """Return a scenario file's lines: those of tables, behind the program's."""
    program, *others = tables.items()
    lines = [f"{program[0]} = {toml_value(program[1])}"]
    for name, values in others:
        lines.append(f"[{name}]")
        for key, value in values.items():
            lines.append(f"{key if key.isascii() and key.isidentifier() else toml_value(key)} = {toml_value(value)}")
    return lines


def _load_tables(
    tables: Mapping[str, Any], given: Path, name: str, overrides: Mapping[str, object], overrides_file: str
) -> Scenario:
    """Load a scenario from its tables; its path, also in messages, is `given`."""
    from scenarios.config.load import load  # noqa: PLC0415
    from scenarios.seam.errors import ScenarioError  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.toml")
        try:
            file.write_text("\n".join(_lines(tables)) + "\n", encoding="utf-8")
        except UnicodeEncodeError:
            raise ScenarioError(f"{given}: expected a path and arguments in UTF-8") from None
        try:
            of_keys = {name: value for name, value in overrides.items() if name != "profile"}
            made = load(file, of_keys, overrides_file=overrides_file)
        except ScenarioError as error:
            raise ScenarioError([line.replace(f"{file}: ", f"{given}: ") for line in error.sentences]) from None
    return replace(made, path=given)


def load_named(path: str | os.PathLike[str], overrides: Mapping[str, object]) -> Scenario:
    """Return a scenario, or a script, whose `overrides` then also have its arguments and where it runs."""
    of_script: dict[str, Any] = {name: overrides[name] for name in OF_SCRIPT if name in overrides}
    if not os.fspath(path).endswith(".py"):
        of_script = {}
    values = {name: value for name, value in overrides.items() if name not in of_script}
    return load_given(Path(path), values, **of_script)
