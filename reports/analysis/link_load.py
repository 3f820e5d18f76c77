"""How much links carried when, and between which hosts, as a person looks at it; pure functions of a run's frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.frames import ints
from reports.analysis.intervals import Floats, Ints
from reports.store.columns import fixed

CLASS_LOAD = {"link_class": "str", "from_ns": "int", "until_ns": "int", "utilisation": "float"}


def class_load(loads: pd.DataFrame, links: pd.DataFrame, from_ns: int, until_ns: int, parts: int) -> pd.DataFrame:
    """Of each class of links, what it carried in each of so many equal parts of a time over what it could carry.

    Links that stand for others count as often as they do.
    """
    edges = np.unique(np.linspace(from_ns, until_ns, parts + 1).round().astype(np.int64))
    named = links[["link", "direction", "link_class"]].drop_duplicates(["link", "direction"])
    classed = loads.merge(named, on=["link", "direction"], how="inner")
    could = links["bytes_per_s"] * links["link_count"]
    per_s = could.groupby(links["link_class"]).sum()
    found = []
    for name, own in classed.groupby("link_class", sort=True):
        carried = np.diff(_carried_until(own, edges))
        share = carried / (float(per_s[name]) * np.diff(edges) / 1e9)
        found.append(
            pd.DataFrame({"link_class": name, "from_ns": edges[:-1], "until_ns": edges[1:], "utilisation": share})
        )
    whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame({name: [] for name in CLASS_LOAD})
    return fixed({**whole}, CLASS_LOAD)


def _carried_until(loads: pd.DataFrame, moments: Ints) -> Floats:
    """Bytes of all rows together up to each moment, a row's bytes flowing evenly from its begin to its end."""
    begins, ends = ints(loads, "from_ns"), np.maximum(ints(loads, "until_ns"), ints(loads, "from_ns") + 1)
    rates = (loads["bytes_carried"] * loads["link_count"]).to_numpy(float) / (ends - begins)
    times, places = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    changes = np.bincount(places, np.concatenate([rates, -rates]), len(times))
    flown = np.concatenate([[0.0], np.cumsum(np.cumsum(changes)[:-1] * np.diff(times))])
    return np.asarray(np.interp(moments, times, flown))


@dataclass(frozen=True, slots=True)
class HostMatrix:
    """Bytes from the hosts of each group to those of each other, [groups, groups]; nan where nothing is to be said.

    `firsts` and `lasts` are each group's hosts, `counts` how many are like them, themselves included. A group is one
    host where they are few: then it is what one such host gives to one other. Of larger ones it is all that all give.
    """

    bytes_carried: Floats
    firsts: Ints
    lasts: Ints
    counts: Ints


def host_matrix(traffic: pd.DataFrame, most: int) -> HostMatrix | None:
    """With so many groups at most, of equally many hosts each; None where nothing went from host to host.

    What stays inside a host is left out, and so its square is nan, but where hosts stand for others like them.
    """
    if not (traffic["bytes_carried"] > 0).any():
        return None
    hosts = np.unique(np.concatenate([ints(traffic, "from_host"), ints(traffic, "to_host")]))
    a_group = -(-len(hosts) // most)
    groups = -(-len(hosts) // a_group)
    rows, columns = (np.searchsorted(hosts, ints(traffic, name)) // a_group for name in ("from_host", "to_host"))
    carried = np.zeros((groups, groups))
    senders = 1 if a_group == 1 else ints(traffic, "host_count")
    np.add.at(carried, (rows, columns), traffic["bytes_carried"].to_numpy(float) * senders)
    known = traffic.drop_duplicates("from_host").set_index("from_host")["host_count"]
    counts = known.reindex(hosts, fill_value=1).to_numpy(np.int64)
    if a_group == 1:
        peers = counts[None, :] - np.eye(groups)  # nobody is a peer of itself
        carried = np.divide(carried, peers, out=np.full(carried.shape, np.nan), where=peers > 0)
    starts = np.arange(groups) * a_group
    lasts = hosts[np.minimum(starts + a_group, len(hosts)) - 1]
    return HostMatrix(carried, hosts[starts], lasts, np.add.reduceat(counts, starts))
