"""`twinstep completion`: a script for the shell that completes commands, options, scenarios, profiles and files.

The script is static: completing starts no Python. Options are those of each command's own parser.
"""

from __future__ import annotations

import argparse
from argparse import Action, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

_SHELLS = ("bash", "zsh", "fish")
# How each shell lists words and files; a name with "_file" in it has bash treat its words as paths.
_FUNCTIONS = {
    "bash": '{name}() {{ compgen -W "{words}" -- "$1"; compgen -f -- "$1"; }}',
    "zsh": "{name}() {{ _alternative 'words:{what}:({words})' 'files:file:_files' }}",
    "fish": "function {name}; string split ' ' '{words}'; __fish_complete_path (commandline -ct); end",
}


def main(arguments: Sequence[str] | None = None, prog: str = "twinstep completion") -> int:
    """Print the script; return 0."""
    parser = ArgumentParser(
        prog=prog,
        description="Print a script with which a shell completes commands, options, ready scenarios and profiles. Write"
        " it to ~/.local/share/bash-completion/completions/twinstep for bash, _twinstep in a folder of $fpath for zsh,"
        " ~/.config/fish/completions/twinstep.fish for fish.",
    )
    parser.add_argument("shell", choices=_SHELLS, help="your shell")
    shell = parser.parse_args(arguments).shell
    import shtab

    script = shtab.complete(_whole_parser(), shell)
    # Where nothing is known, bash completes files.
    print(script.replace("complete -o bashdefault -F", "complete -o bashdefault -o default -F"))
    return 0


def _whole_parser() -> ArgumentParser:
    """Return one parser with those of all commands."""
    from twinstep.__main__ import COMMANDS

    whole = ArgumentParser(prog="twinstep", description="Predict distributed training steps.")
    whole.add_argument("--version", action="store_true", help="print the version")
    commands = whole.add_subparsers()
    ready = _ready()
    for name, command in COMMANDS.items():
        own = parser_of(command.module, command.words)
        _mark(own, ready)
        commands.add_parser(name, help=command.about, parents=[own], add_help=False)
    return whole


class _Caught(BaseException):
    """The end of a command before it parses its options, with the parser."""

    def __init__(self, parser: ArgumentParser) -> None:
        self.parser = parser


@contextmanager
def _catching() -> Iterator[None]:
    """Have every parser end its command in place of parsing."""
    usual = ArgumentParser.parse_args

    def stop(parser: ArgumentParser, *_: object, **__: object) -> Any:
        raise _Caught(parser)

    ArgumentParser.parse_args = stop  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        ArgumentParser.parse_args = usual  # type: ignore[method-assign]


def parser_of(module: str, words: Sequence[str]) -> ArgumentParser:
    """Return the parser that a command's module makes."""
    with _catching():
        try:
            import_module(module).main([*words], prog="twinstep")
        except _Caught as caught:
            parser = caught.parser
    for word in words:  # commands of `python -m reports` and `python -m scenarios`
        parser = commands_of(parser).get(word, parser)
    return parser


def commands_of(parser: ArgumentParser) -> Mapping[str, ArgumentParser]:
    """Return the parsers of a parser's subcommands, by their words."""
    subparsers = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next(iter(subparsers), {})


def _mark(parser: ArgumentParser, ready: Mapping[str, Any]) -> None:
    """Set for each option and argument of a parser, and of its subcommands, what completes it."""
    for action in parser._actions:
        if found := _what(action, ready):
            action.complete = found  # type: ignore[attr-defined]  # where shtab looks
    for command in commands_of(parser).values():
        _mark(command, ready)


def _what(action: Action, ready: Mapping[str, Any]) -> Any:
    import shtab

    about = action.help or ""
    if "name of a ready scenario" in about:
        return ready["scenario"]
    if action.dest == "profile" or "ready profile" in about or "profile file" in about:
        return ready["profile"]
    if action.metavar == "DIR":
        return shtab.DIRECTORY
    return shtab.FILE if action.type is Path or str(action.metavar).startswith(("FILE", "PLAN")) else None


def _ready() -> dict[str, Any]:
    """Return how shells complete the names of ready scenarios and of profiles."""
    from scenarios.config.catalogue import library_files, profile_names

    names = {"scenario": [path.stem for path in library_files()], "profile": profile_names()}
    found = {}
    for what, words in names.items():
        name = f"_twinstep_{what}_or_file"
        made = {shell: text.format(name=name, what=what, words=" ".join(words)) for shell, text in _FUNCTIONS.items()}
        found[what] = {"bash": name, "zsh": name, "fish": f"({name})", "preamble": made}
    return found
