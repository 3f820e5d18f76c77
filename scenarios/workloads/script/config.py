"""The table `script` of a scenario file, and the program that reads it; loads no torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scenarios.config.toml.look import Look, named_file
from scenarios.config.toml.mistakes import Mistakes
from scenarios.config.toml.program_spec import ProgramSpec, Table
from scenarios.config.toml.section import Section, about, have
from scenarios.config.toml.sections import Document, RunSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A training script, its arguments and what is added to its environment; `sha256` is of its content, so that a
    changed script is a changed scenario.
    """

    path: Path
    sha256: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


class ScriptSection(Section):
    """A training script of one's own, as torchrun starts it."""

    path: str | None = about("The script, relative to this file. Required.")
    args: list[str] | None = about("Its arguments. Default none.")
    env: dict[str, str] | None = about("What is added to its environment. Default nothing.")


def _check(section: ScriptSection, document: Document, look: Look) -> None:
    look.need(("script",), section, "path")
    path = ("script", "path")
    if section.path is not None and look.mistakes.sound(path):
        file = named_file(look.mistakes, path, section.path)
        if not file.is_file():
            look.mistakes.add(path, f"a script, but there is no file {file}")
    run, is_gpu = document.run or RunSection(), _is_on_gpu(document)
    if run.payload == "sizes" and not is_gpu:
        look.mistakes.add(("run", "payload"), "'values', which a script that runs live needs")
    if run.payload == "values" and is_gpu:
        look.mistakes.add(("run", "payload"), "'sizes', because a script computes nothing for GPUs")
    if run.ranks == "alike":
        look.mistakes.add(("run", "ranks"), "'each': every rank of a script runs")


def _is_on_gpu(document: Document) -> bool:
    gpu = document.cluster.gpu if document.cluster else None
    return gpu is not None and gpu.kind == "cuda"


def _build(document: Document, mistakes: Mistakes) -> dict[str, Any]:
    section = have(TABLE.of(document))
    path = named_file(mistakes, ("script", "path"), have(section.path))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    env = tuple(sorted((section.env or {}).items()))
    return {"options": Script(path=path, sha256=digest, args=tuple(section.args or ()), env=env)}


TABLE = Table(key="script", section=ScriptSection, about="The script. Required by program 'script'.", check=_check)
SPEC = ProgramSpec(
    name="script",
    factory="scenarios.workloads.script.program:ScriptProgram",
    summary="a training script of one's own",
    needs=TABLE,
    payload=lambda document: "sizes" if _is_on_gpu(document) else "values",
    batch_size="refused",
    why_each=lambda _: "program = 'script'",
    build=_build,
)
