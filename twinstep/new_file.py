"""Writes files of commands, none of which overwrites another."""

from __future__ import annotations


def write_new(file: str, text: str) -> None:
    """Write a new file.

    Raises:
        ScenarioError: the file exists already, or cannot be written.
    """
    from scenarios.seam.errors import ScenarioError

    try:
        with open(file, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ScenarioError(
            [f"--out = {file}: exists already; nothing is ever overwritten, give another file"]
        ) from None
    except OSError as error:
        raise ScenarioError([f"--out = {file}: expected a file that can be written: {error.strerror}"]) from None
