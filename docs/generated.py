"""Write the pages of reference that declarations give: keys, commands and profiles."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scenarios.config.toml.schema import reference
from twinstep.__main__ import COMMANDS
from twinstep.completion import commands_of, parser_of

PROFILES = Path(__file__).parents[1] / "scenarios" / "profiles"


def write(folder: Path) -> None:
    """Write `keys.md`, `commands.md` and `profiles.md` into `folder`, where their text has changed."""
    pages = {"keys": keys(), "commands": commands(), "profiles": profiles()}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def keys() -> str:
    """Return the page of all keys of scenario files."""
    return (
        "# Every key of a scenario file\n\n`twinstep keys` prints this page. [Quantities](scenario.md#quantities) has"
        " the units' prefixes. A default\nwithout a source is this project's choice."
        f"\n\n{reference().replace('### ', '## ')}"
    )


def commands() -> str:
    """Return the page of all commands: usage, arguments and options, as `--help` prints them."""
    parts = ["# Commands\n\nEvery command prints this with `--help`.\n"]
    for name, command in COMMANDS.items():
        parts += _described(parser_of(command.module, command.words), f"twinstep {name}", command.about)
    return "\n".join(parts)


def _described(parser: argparse.ArgumentParser, name: str, about: str, level: str = "##") -> Iterator[str]:
    about = (parser.description or f"{about[0].upper()}{about[1:]}.").replace("%(prog)s", name)
    yield f"{level} `{name}`\n\n{about}\n"
    rows = [row for action in parser._actions if (row := _row(action))]
    if rows:
        yield "| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {one.dest: one.help or "" for action in found for one in action._choices_actions}
    for word, inner in commands_of(parser).items():
        yield from _described(inner, f"{name} {word}", helps[word], level + "#")


def _row(action: argparse.Action) -> str:
    if isinstance(action, argparse._HelpAction | argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
        return ""
    choices = ",".join(map(str, action.choices)) if action.choices else ""
    value = action.metavar or (f"{{{choices}}}" if choices else action.dest.upper())
    value = " ".join(value) if isinstance(value, tuple) else value
    given = [value] if not action.option_strings else action.option_strings
    taken = f" {value}" if action.option_strings and action.nargs != 0 else ""
    name = ", ".join(given) + taken
    about = (action.help or "") % {**vars(action), "prog": "twinstep"} if action.help else ""
    cells = (cell.replace("|", "\\|").replace("\n", " ") for cell in (f"`{name}`", about))
    return f"| {' | '.join(cells)} |"


def profiles() -> str:
    """Return the page of the ready profiles: each file as it is, with the source of every figure."""
    parts = [
        "# Profiles\n\nHardware that a scenario can name (`cluster.profile`), then failures (`job.failures.profile`)."
        " `twinstep profile NAME` prints\na file. Comments give the source of each figure;"
        ' "assumed" marks figures without one.\n'
    ]
    for path in [*sorted(PROFILES.glob("*.toml")), *sorted(PROFILES.glob("failures/*.toml"))]:
        text = path.read_text(encoding="utf-8")
        about: dict[str, Any] = tomllib.loads(text)
        parts.append(f"## {path.stem}\n\n{about.get('description', '')}\n\n```toml\n{text}```\n")
    return "\n".join(parts)
