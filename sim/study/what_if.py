"""The command `python -m sim what-if`: one thing of a scenario changed at a time, each simulated, by what it gains."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from reports.study.what_if import as_json, ranked, summarize
from reports.terminal import text
from reports.terminal.present import output, print_json
from scenarios.config.catalogue import expected_scenario, scenario_file
from scenarios.config.load import load, report_mistakes
from scenarios.config.overrides.option import add_set, given_by
from scenarios.config.overrides.overrides import Overrides
from scenarios.config.scenario import Scenario
from scenarios.config.toml.include import read_tree
from scenarios.config.toml.mistakes import toml_text
from scenarios.seam.errors import ScenarioError
from sim.progress import Bar
from sim.study.counterfactuals import counterfactuals
from sim.study.play import play_point
from sim.study.task import Task

_NEVER_S = float("inf")


def what_if_command(arguments: Sequence[str], prog: str) -> int:
    """Run the command. 0: done, whatever single changes ended with; 1: the scenario itself failed; 2: a mistake."""
    options = _parser(prog).parse_args(arguments)
    with report_mistakes():
        given = given_by(options.sets)
        scenario = load(options.scenario, given)
        with Bar(1, quiet=options.json) as bar:
            found = ranked(changes_of(scenario, options.scenario, given, bar))
    with output():
        if options.json:
            print_json(as_json(found, scenario.name))
        else:
            text.show(summarize(found, scenario.name), sys.stdout)
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Change one thing at a time of a scenario, simulate each, and rank them by what they gain.",
    )
    parser.add_argument("scenario", help="a scenario file, or the name of a ready one")
    add_set(parser)
    parser.add_argument("--json", action="store_true", help="print all changes as JSON")
    return parser


def changes_of(
    scenario: Scenario, path: str | os.PathLike[str], given: Mapping[str, object], bar: Bar
) -> list[dict[str, Any]]:
    """A row for the scenario as it is, then one for each change, as `ranked` takes them.

    Raises:
        ScenarioError: the scenario itself does not come to its end.
    """
    file = scenario_file(path)
    if not os.path.isfile(file):
        raise ScenarioError(expected_scenario(file))
    tree = read_tree(file, Overrides(given)).tree
    bar.say("as it is")
    base = _played(scenario)
    if base["status"] != "done":
        raise ScenarioError(str(base["sentence"]))
    rows = [{"change": "as it is", "values": {}, "options": "", **base}]
    for one in counterfactuals(scenario, tree):
        bar.say(one.name)
        options = shlex.join(
            [
                word
                for key, of in one.values.items()
                for word in ("--set", f"{key}={of if isinstance(of, str) else toml_text(of)}")
            ]
        )
        row = {"change": one.name, "values": dict(one.values), "options": options}
        try:
            rows.append({**row, **_played(load(path, {**given, **one.values}))})
        except ScenarioError as error:
            rows.append({**row, "status": "scenario error", "sentence": str(error)})
    return rows


def _played(scenario: Scenario) -> dict[str, Any]:
    result = play_point(Task(scenario=scenario, fidelity=scenario.fidelity, timeout_s=_NEVER_S, keep="rows"))
    measures = {name: result.measures.get(name, float("nan")) for name in ("step_ns", "samples_per_s", "exposed_share")}
    return {"status": result.status, "sentence": result.sentence, **measures}
