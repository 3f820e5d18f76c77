"""The section on the scenario, its hosts and the versions of packages."""

from __future__ import annotations

import json
from collections.abc import Iterator

from reports.sections.model import Block, Listing, ReportSection, Words, on_page
from reports.sections.run.headline import WORLDS
from reports.sections.run.subject import RunView
from reports.terminal import text

_HOSTS = 64


def _blocks(view: RunView) -> Iterator[Block]:
    info = view.run.info
    hosts = ", ".join(info.hosts[:_HOSTS]) + (f" and {len(info.hosts) - _HOSTS:,} more" if info.hosts[_HOSTS:] else "")
    lines = [
        f"{WORLDS.get(info.world, info.world)}, started {info.started or 'at an unknown time'}",
        f"wall time {info.elapsed_s:.1f} s; seed {info.seed}; digest {info.digest}",
        f"hosts: {hosts or 'unknown'}",
    ]
    if info.clock_residual_ns:
        lines.append(f"clocks of the hosts agree within {text.duration(info.clock_residual_ns)}")
    yield Words("\n".join(lines))
    yield Listing("Scenario", json.dumps(info.scenario, indent=2, ensure_ascii=False))
    known = "\n".join(f"{name} {version}" for name, version in sorted(info.versions.items()))
    yield Listing("Versions", known or "none were kept", open=True)


SCENARIO = ReportSection("scenario", "Scenario and versions", [on_page(_blocks)], folded=True)
