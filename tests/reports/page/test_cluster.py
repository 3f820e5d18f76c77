"""The cluster as a picture: hosts with their GPUs, links in the colour of their load."""

from __future__ import annotations

import dataclasses
from typing import Any
from xml.etree import ElementTree as Xml

from reports.page.blocks import Picture
from reports.page.run.cluster import cluster
from reports.run import Run
from reports.sections.run.subject import RunView
from scenarios.seam.trace import LinkRow
from tests.reports.recordings import SCENARIO, by_hand


def rows(hosts: int, **more: str) -> list[LinkRow]:
    """Return a GPU and a NIC for each host, whose load grows with the host's number; NICs carry five times as much."""
    known: dict[str, Any] = {"bytes_per_s": 1e9, "busy_ns": 100}

    def row(link: str, link_class: str, host: int, carried: float) -> list[LinkRow]:
        both = (("in", carried), ("out", carried / 2))
        return [
            LinkRow(link=f"{link}.{way}", direction=way, link_class=link_class, host=host, bytes_carried=each, **known)
            for way, each in both
        ]

    found = []
    for host in range(hosts):
        found += row(f"gpu{host}", "nvlink", host, 1.0 + host) + row(f"host{host}.nic0", "nic", host, 5.0 * (1 + host))
    for link, link_class in more.items():
        found += row(f"{link}.uplinks", link_class, 0, 2.5)
    return found


def picture(links: list[LinkRow], network: dict[str, Any] | None = None) -> Picture:
    scenario = {**SCENARIO, "cluster": {"hosts": 2, "host": {"gpus": 1}, "network": network or {}}}
    recording = by_hand()
    info = dataclasses.replace(recording.info, scenario=scenario)
    (found,) = cluster(RunView.of(Run.of(dataclasses.replace(recording, info=info, links=links))))
    return found


def colors(found: Picture) -> dict[str, str]:
    """Return the colour of each link's drawing, by the first line that it says under the mouse."""
    drawn = [one for one in Xml.fromstring(found.svg).iter() if "load" in one.attrib.get("class", "")]
    return {str(one.findtext("title")).split(" ")[0]: one.attrib["class"].split()[-1] for one in drawn}


def words(found: Picture) -> list[str]:
    return [str(one.text) for one in Xml.fromstring(found.svg).iter("text")]


def test_links_have_the_colour_of_their_busier_direction() -> None:
    found = picture(rows(2))
    assert colors(found) == {
        "host0.nic0.in": "load-4",
        "host1.nic0.in": "load-7",
        "gpu0.in": "load-1",
        "gpu1.in": "load-1",
    }
    assert words(found) == ["network", "host 0", "0", "host 1", "1"]
    assert found.caption.startswith("Bottleneck: host1.nic0.in (nic), 3.3 % of its capacity over the run, 10.0 % while")
    assert [name for _, name in found.legend] == ["0.0 %", "1.0 %", "1.9 %", "3.3 %"]


def test_leaf_switches_span_their_hosts() -> None:
    found = picture(rows(4, leaf0="uplink", leaf1="uplink"), {"kind": "leaf_spine", "hosts_per_leaf": 2})
    assert words(found)[:3] == ["spines", "leaf0", "leaf1"]
    boxes = {str(one.findtext("title")): one.attrib for one in Xml.fromstring(found.svg).iter("rect")}
    assert [(boxes[name]["x"], boxes[name]["width"]) for name in ("leaf0", "leaf1")] == [
        ("1.250%", "47.500%"),
        ("51.250%", "47.500%"),
    ]
    assert colors(found)["leaf0.uplinks.in"] == "load-1"


def test_one_host_has_no_network() -> None:
    assert words(picture([one for one in rows(1) if one.link_class == "nvlink"])) == ["host 0", "0"]


def test_of_many_hosts_those_with_the_highest_loads_are_shown() -> None:
    found = picture(rows(40))
    assert "7 of 40 hosts, those with the highest loads" in found.note
    assert words(found) == ["network", *map(str, range(33, 40)), "+ 33", "more"]
