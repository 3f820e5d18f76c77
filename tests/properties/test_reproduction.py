"""A property that fails prints a small case and the command that shows it, which runs as it is printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from real.check.cases.exchanges import AllToAll
from real.check.strategies import CASES

ROOT = Path(__file__).parents[2]
PROPERTY = "tests/properties/test_all_to_all.py"

# Python imports this module by itself: in the simulator the first element that a rank receives is lost.
FAULT = """
import sim.rank.rendezvous

delivered = sim.rank.rendezvous.deliver


def deliver(call, payloads):
    delivered(call, payloads)
    for output in payloads[call.group.index(call.rank)].outputs:
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


@pytest.mark.slow
def test_a_failing_property_prints_the_command_that_shows_a_small_case_in_both_worlds(faulty: dict[str, str]) -> None:
    # Without the summary at the end, which says the same once more where $CI is set.
    failing = start(["-m", "pytest", PROPERTY, "-p", "no:cacheprovider", "-rN"], faulty)
    printed, _ = failing.communicate()
    assert failing.returncode == 1, printed
    (command,) = [shlex.split(line.removeprefix("E")) for line in printed.splitlines() if "python -m" in line]
    assert command[:5] == ["python", "-m", "real", "check", "--case"]
    (text,) = command[5:]
    case = eval(text, dict(CASES))
    assert isinstance(case, AllToAll)
    (exchange,) = case.exchanges
    assert (case.hosts * case.gpus, exchange.counts) == (1, ((1,),))
    shown = start(command[1:], faulty)
    told, _ = shown.communicate()
    assert shown.returncode == 1, told
    assert [line.split(":")[0] for line in told.splitlines() if line.endswith("<-- differs")] == ["sim"]
    assert "\nreal: AllToAll 0: rank 0: tensor 0: " in told
