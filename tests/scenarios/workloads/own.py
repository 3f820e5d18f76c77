"""A program of one's own and a scenario beside it, as files."""

from __future__ import annotations

from pathlib import Path

from scenarios.config.load import load
from scenarios.workloads.build import build
from tests.mistakes import mistakes_of

TRAIN = """
import torch
from scenarios.seam.program import Program

{above}

class Train(Program):
{body}
    def __init__(self, scenario):
        self.steps, self.options, self.scenario = scenario.steps, scenario.options, scenario

    async def __call__(self, rank):
        for step in range(self.steps):
            with rank.step(step):
                await rank.all_reduce(torch.ones(ELEMENTS, device=rank.device))
"""
FILE = """
program = "{program}"
run = {{steps = 2{run}}}

[cluster]
profile = "cpu_local"
hosts = 2
gpus_per_host = 1

{further}
"""


def train(above: str = "ELEMENTS = 4", body: str = "") -> str:
    """Return a program's code; `body` are lines of its class."""
    return TRAIN.format(above=above, body="".join(f"    {line}\n" for line in body.splitlines()))


def stepless() -> str:
    """Return the code of a program that enters no step."""
    return train().replace("with rank.step(step):", "if True:")


NO_STEP = "no rank completed a step; the program enters none: expected 'with rank.step(index):' around each"


def write_scenario(
    folder: Path, code: str | None = None, *, further: str = "", run: str = "", program: str = ""
) -> Path:
    """Return the path of a scenario file whose program is `train_step.py` beside it."""
    folder.mkdir(exist_ok=True)
    if code is not None:
        (folder / "train_step.py").write_text(code)
    path = folder / "my.toml"
    path.write_text(FILE.format(program=program or "./train_step.py:Train", further=further, run=run))
    return path


def sentences(path: Path, **overrides: object) -> list[str]:
    """Return what is wrong with a scenario or its program, without the file's name."""
    return [sentence.removeprefix(f"{path}: ") for sentence in mistakes_of(lambda: build(load(path, overrides)))]
