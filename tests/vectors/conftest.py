"""Says at the end of a session how many recorded cases were replayed, file by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

# What was seen beside the recordings, for the end of the session.
NOTES = pytest.StashKey[list[str]]()


@dataclass
class Tally:
    """What became of one file."""

    cases: set[str] = field(default_factory=set)
    ways: Counter[str] = field(default_factory=Counter)
    failed: int = 0

    def sentence(self, file: str) -> str:
        replays = self.ways.total()
        ways = ", ".join(f"{count} {_word(way)} {way}" for way, count in self.ways.items() if way)
        details = f" ({replays} replays: {ways})" if ways else ""
        failures = f", {self.failed} failed" if self.failed else ""
        return f"{file}: {len(self.cases)} case{'' if len(self.cases) == 1 else 's'}{details}{failures}"


def _word(way: str) -> str:
    """As a release, or on a world; without importing any, so that a wrong option is told at once."""
    return "as" if way[0].isdigit() else "on"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tallies: dict[str, Tally] = {}
    for report, (file, case, way) in _replays(terminalreporter):
        tally = tallies.setdefault(file, Tally())
        tally.failed += report.failed
        if case:
            tally.cases.add(case)
            tally.ways[way] += 1
    if tallies:
        terminalreporter.section("recorded cases replayed")
    for file in sorted(tallies):
        terminalreporter.write_line(tallies[file].sentence(file))
    for note in terminalreporter.config.stash.get(NOTES, []):
        terminalreporter.write_line(note)


def _replays(reporter: pytest.TerminalReporter) -> Iterator[tuple[pytest.TestReport, tuple[str, str, str]]]:
    for report in [*reporter.getreports("passed"), *reporter.getreports("failed")]:
        replayed = dict(getattr(report, "user_properties", ())).get("replay")
        if replayed is not None and report.when == "call":
            yield report, replayed
