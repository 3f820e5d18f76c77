"""Draw the cluster: hosts as boxes with their GPUs, and links coloured by their load."""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import Markup

from reports.page import svg, theme
from reports.page.blocks import Picture
from reports.sections.run.subject import RunView
from reports.terminal import text
from reports.terminal.rows import records, represent_rows

_HOSTS = 8  # of more hosts, those with the most loaded links
# px: switches, links between switches and hosts, a GPU's row, a host's name, what a host's GPUs share.
_SWITCH, _LINK, _ROW, _NAME, _SHARED = 22, 34, 26, 20, 16
_NAMED = 4  # hosts on a phone's width, up to which GPUs have their numbers
_DIRECTION = r"\.(in|out)$"
_BETWEEN = {"leaf_spine": "spines", "rail_only": "rails"}


def cluster(view: RunView) -> list[Picture]:
    """Draw hosts, GPUs, NICs and switches, each in the colour of its links' load over the run."""
    picture = _Cluster(view)
    most, (link,) = view.run.links.iloc[0], represent_rows(view.run.links.head(1), "link")
    note = "Colour: mean load over the run, of the busier direction of a link"
    if picture.left_out:
        shown, hosts = len(picture.hosts), picture.left_out + len(picture.hosts)
        note += f"; {shown} of {hosts:,} hosts, those with the highest loads"
    said = (
        f"Bottleneck: {link} ({most['link_class']}), {text.percent(most['utilisation'])} of its capacity over the run,"
        f" {text.percent(most['busy_utilisation'])} while it is busy."
    )
    return [Picture("cluster", "The cluster", picture.draw(), f"{note}.", picture.legend(), said)]


class _Cluster:
    """The hosts that are shown, from left to right, and the loads of links by their owners."""

    def __init__(self, view: RunView) -> None:
        run = view.run
        hardware = run.info.scenario.get("cluster") or {}
        self._network = hardware.get("network") or {}
        rows = run.links.assign(owner=run.links["link"].str.replace(_DIRECTION, "", regex=True))
        self._loads = {str(name): own for name, own in rows.groupby("owner", sort=False)}
        self._most = float(rows["utilisation"].max()) or 1.0
        inside = rows[(rows["link_class"] != "uplink").to_numpy(bool)]
        by_load = inside.groupby("host", sort=False)["utilisation"].max().sort_values(ascending=False, kind="stable")
        self.hosts = sorted(by_load.index.tolist()[: _HOSTS if len(by_load) <= _HOSTS else _HOSTS - 1])
        self._counts = dict(run.info.host_counts) or dict.fromkeys(by_load.index.tolist(), 1)
        self.left_out = 0 if len(self.hosts) == len(by_load) else sum(self._counts.values()) - len(self.hosts)
        names = inside.drop_duplicates("owner").set_index("host")["owner"]
        self._owners: dict[int, list[str]] = {host: names.loc[[host]].tolist() for host in self.hosts}
        self._wide = 1 / (len(self.hosts) + bool(self.left_out))

    def draw(self) -> Markup:
        """Return the picture: switches, the links down from them, then hosts."""
        found, top = [], 0.0
        leaves = self._leaves()
        if leaves:
            found.append(self._switch(0, 1, top, "spines"))
            top += _SWITCH
            for name, (first, count) in leaves.items():
                left, width = first * self._wide, count * self._wide
                found.append(self._line(left + width / 2, top, f"{name}.uplinks"))
                found.append(self._switch(left + 0.05 * self._wide, width - 0.1 * self._wide, top + _LINK, name))
            top += _LINK + _SWITCH
        elif any(".nic" in owner for owner in self._loads) and len(self._counts) > 1:
            found.append(self._switch(0, 1, top, _BETWEEN.get(str(self._network.get("kind")), "network")))
            top += _SWITCH
        for at, host in enumerate(self.hosts):
            found += self._nics(at * self._wide, top, host) if top else []
        top += _LINK if top else 0
        bottoms = [top]
        for at, host in enumerate(self.hosts):
            boxes, bottom = self._host(at * self._wide, top, host)
            found, bottoms = found + boxes, [*bottoms, bottom]
        if self.left_out:
            left, height = 1 - 0.95 * self._wide, max(bottoms) - top
            found.append(svg.box(left, top, 0.9 * self._wide, height, "", class_="host"))
            middle = 1 - self._wide / 2
            for down, word in enumerate((f"+ {self.left_out:,}", "more")):
                found.append(svg.words(middle, top + height / 2 + 14 * down, word, text_anchor="middle"))
        return svg.drawing(max(bottoms) + 2, found, "Hosts with their GPUs, and the loads of links")

    def legend(self) -> list[tuple[str, str]]:
        """Return some colours and the loads that they stand for."""
        last = theme.LOADS - 1
        return [(f"load-{at}", text.percent(self._most * at / last)) for at in (0, last // 3, 2 * last // 3, last)]

    def _leaves(self) -> dict[str, tuple[int, int]]:
        """Return the place of the first of each leaf's hosts and their number, by the leaf's name."""
        each = self._network.get("hosts_per_leaf")
        found: dict[str, tuple[int, int]] = {}
        for at, host in enumerate(self.hosts if isinstance(each, int) and each else []):
            first, count = found.get(f"leaf{host // each}", (at, 0))
            found[f"leaf{host // each}"] = first, count + 1
        return found

    def _nics(self, left: float, top: float, host: int) -> Iterator[Markup]:
        owners = [owner for owner in self._owners[host] if ".nic" in owner]
        for at, owner in enumerate(sorted(owners, key=lambda one: (len(one), one))):
            yield self._line(left + self._wide * (0.1 + 0.8 * (at + 0.5) / len(owners)), top, owner)

    def _host(self, left: float, top: float, host: int) -> tuple[list[Markup], float]:
        """Return a host's box, and where it ends."""
        owners = self._owners[host]
        gpus: dict[int, list[str]] = {}
        for owner in owners:
            if owner.startswith("gpu"):
                gpus.setdefault(int(owner.split(".")[0].removeprefix("gpu")), []).append(owner)
        shared = sorted(owner for owner in owners if owner.startswith("host") and ".nic" not in owner)
        across = min(len(gpus), 8 if len(self.hosts) <= _NAMED // 2 else 4) or 1
        height = _NAME + _ROW * math.ceil(len(gpus) / across) + (_SHARED if shared else 0) + 6
        inner, wide = left + 0.1 * self._wide, 0.8 * self._wide / across
        name = f"host {text.representative(host, self._counts.get(host, 1))}"
        found = [svg.box(left + 0.05 * self._wide, top, 0.9 * self._wide, height, name, class_="host")]
        short = name if len(self.hosts) <= _NAMED else str(host)
        found.append(svg.words(left + self._wide / 2, top + 14, short, text_anchor="middle"))
        for at, (gpu, own) in enumerate(sorted(gpus.items())):
            x, y = inner + (at % across) * wide, top + _NAME + _ROW * (at // across)
            found.append(self._square(x + 0.05 * wide, y, 0.9 * wide, _ROW - 4, own))
            if len(self.hosts) <= _NAMED:
                found.append(svg.words(x + wide / 2, y + 15, str(gpu), text_anchor="middle", class_="number"))
        for at, owner in enumerate(shared):
            each = 0.8 * self._wide / len(shared)
            found.append(self._square(inner + at * each, top + height - _SHARED - 2, each, _SHARED - 4, [owner]))
        return found, top + height

    def _switch(self, left: float, width: float, top: float, name: str) -> Markup:
        middle = svg.words(left + width / 2, top + 15, name, text_anchor="middle")
        return svg.box(left, top, width, _SWITCH, name, class_="switch") + middle

    def _line(self, at: float, top: float, owner: str) -> Markup:
        place = {"x1": svg.share(at), "x2": svg.share(at), "y1": f"{top}", "y2": f"{top + _LINK}"}
        title = svg.element("title", [self._says([owner])])
        return svg.element("line", [title], **place, class_=f"link {self._color([owner])}")

    def _square(self, left: float, top: float, width: float, height: float, owners: list[str]) -> Markup:
        return svg.box(left, top, width, height, self._says(owners), class_=self._color(owners))

    def _color(self, owners: list[str]) -> str:
        known = [self._loads[owner]["utilisation"].max() for owner in owners if owner in self._loads]
        return f"load-{round(float(max(known, default=0.0)) / self._most * (theme.LOADS - 1))}"

    def _says(self, owners: list[str]) -> str:
        """Return the load of each link, its directions with it."""
        known = [row for owner in owners if owner in self._loads for row in records(self._loads[owner])]
        said = [f"{row['link']} ({row['link_class']}): {text.percent(row['utilisation'])}" for row in known]
        return "\n".join(said) or f"{owners[0]}: idle"
