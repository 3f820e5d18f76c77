"""A property that fails prints a small case and the two commands that show it, which run as they are printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.properties.__main__ import CASES
from tests.properties.exchanges import AllToAll

ROOT = Path(__file__).parents[2]
PROPERTY = "tests/properties/test_all_to_all.py"

# Python imports this module by itself: in the simulator the first element that a rank receives is lost.
FAULT = """
import sim.rank.rendezvous

delivered = sim.rank.rendezvous.deliver


def deliver(member, calls, payloads):
    delivered(member, calls, payloads)
    for output in payloads[member].outputs:
        output.view(-1)[:1].zero_()


sim.rank.rendezvous.deliver = deliver
"""


@pytest.fixture
def faulty(tmp_path: Path) -> dict[str, str]:
    """The environment of a process with the fault."""
    (tmp_path / "sitecustomize.py").write_text(FAULT)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}


def start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    whole = [sys.executable, *arguments]
    return subprocess.Popen(
        whole, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_failing_property_prints_the_calls_that_show_a_small_case_in_both_worlds(faulty: dict[str, str]) -> None:
    # Without the summary at the end, which says the same once more where $CI is set.
    failing = start(["-m", "pytest", PROPERTY, "-p", "no:cacheprovider", "-rN"], faulty)
    printed, _ = failing.communicate()
    assert failing.returncode == 1, printed
    commands = [shlex.split(line.removeprefix("E")) for line in printed.splitlines() if "python -m" in line]
    assert [command[:4] for command in commands] == [
        ["python", "-m", "tests.properties", world] for world in ("sim", "real")
    ]
    (text,) = commands[0][4:]
    assert commands[1][4:] == [text]
    case = eval(text, dict(CASES))
    assert isinstance(case, AllToAll)
    (exchange,) = case.exchanges
    assert (case.hosts * case.gpus, exchange.counts) == (1, ((1,),))
    shown = [start(command[1:], faulty) for command in commands]
    (simulated, _), (real, _) = [process.communicate() for process in shown]
    assert [process.returncode for process in shown] == [1, 0], simulated + real
    assert "<-- differs" in simulated
    assert "<-- differs" not in real
