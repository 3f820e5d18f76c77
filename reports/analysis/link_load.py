"""Compute the load of links over time, and the traffic between hosts; pure functions of a run's frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from reports.analysis.frames import ints
from reports.analysis.intervals import Floats, Ints
from reports.store.columns import frame_of_columns

LINK_CLASSES = {
    "link_class": "str",
    "links": "int",
    **dict.fromkeys(["bytes_carried", "mean_utilisation", "peak_utilisation", "busy_utilisation"], "float"),
    "hottest_link": "str",
    "hottest_direction": "str",
}
CLASS_LOAD = {"link_class": "str", "from_ns": "int", "until_ns": "int", "utilisation": "float"}


def links(link_rows: pd.DataFrame, elapsed: int) -> pd.DataFrame:
    """Return the link rows with three shares added, highest `utilisation` first.

    `utilisation` is bytes carried over the link's capacity in `elapsed` ns, `busy_share` the share of that time in
    which the link carried anything, `busy_utilisation` bytes carried over the capacity in its busy time, at most 1.
    """
    rate, carried = (link_rows[name].to_numpy(float) for name in ("bytes_per_s", "bytes_carried"))
    zeros = np.zeros(len(link_rows))
    needs_ns = np.divide(1e9 * carried, rate, out=zeros.copy(), where=rate > 0)
    # Small messages pass large ones without taking a share: a link may have carried more than its busy time allows.
    busy_ns = np.maximum(link_rows["busy_ns"].to_numpy(float), needs_ns)
    frame = link_rows.assign(
        utilisation=needs_ns / elapsed if elapsed else zeros,
        busy_share=busy_ns / elapsed if elapsed else zeros,
        busy_utilisation=np.divide(needs_ns, busy_ns, out=zeros.copy(), where=busy_ns > 0),
    )
    return frame.sort_values(["utilisation", "link", "direction"], ascending=[False, True, True], ignore_index=True)


def link_classes(links_frame: pd.DataFrame) -> pd.DataFrame:
    """Return one row per link class, highest peak first; sums and means are weighted by `link_count`.

    `peak_utilisation` is the utilisation of the hottest link, `busy_utilisation` that link's while it is busy.
    """
    count = links_frame["link_count"]
    in_all = {name: links_frame[name] * count for name in ("bytes_carried", "utilisation")}
    by_class = links_frame.assign(**in_all, peak=links_frame["utilisation"]).groupby("link_class", sort=True)
    links_of = by_class["link_count"].sum()
    # the rows of `links` are sorted, the hottest first
    hottest = links_frame.drop_duplicates("link_class").sort_values("link_class")
    columns = {
        "link_class": hottest["link_class"],
        "links": links_of,
        "bytes_carried": by_class["bytes_carried"].sum(),
        "mean_utilisation": by_class["utilisation"].sum() / links_of,
        "peak_utilisation": by_class["peak"].max(),
        "busy_utilisation": hottest["busy_utilisation"],
        "hottest_link": hottest["link"],
        "hottest_direction": hottest["direction"],
    }
    frame = frame_of_columns(columns, LINK_CLASSES)
    return frame.sort_values(["peak_utilisation", "link_class"], ascending=[False, True], ignore_index=True)


def class_load(loads: pd.DataFrame, links: pd.DataFrame, window_ns: tuple[int, int], parts: int) -> pd.DataFrame:
    """Return the utilisation of each link class in each of `parts` equal parts of a time window.

    Args:
        loads: bytes carried by link and interval.
        links: a run's links with their classes and rates; `link_count` weights them.
        window_ns: begin and end of the window.
        parts: the number of parts.
    """
    # A window of fewer ns than parts has equal edges, between which a load would be divided by 0.
    edges = np.unique(np.linspace(*window_ns, parts + 1).round().astype(np.int64))
    named = links[["link", "direction", "link_class"]].drop_duplicates(["link", "direction"])
    classed = loads.merge(named, on=["link", "direction"], how="inner")
    could = links["bytes_per_s"] * links["link_count"]
    per_s = could.groupby(links["link_class"]).sum()
    found = []
    for name, own in classed.groupby("link_class", sort=True):
        carried = np.diff(_bytes_until(own, edges))
        share = carried / (float(per_s[name]) * np.diff(edges) / 1e9)
        found.append(
            pd.DataFrame({"link_class": name, "from_ns": edges[:-1], "until_ns": edges[1:], "utilisation": share})
        )
    whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame({name: [] for name in CLASS_LOAD})
    return frame_of_columns(whole, CLASS_LOAD)


def _bytes_until(loads: pd.DataFrame, moments: Ints) -> Floats:
    """Return the bytes of all rows carried up to each moment; a row's bytes flow evenly from its begin to its end."""
    # At least 1 ns, or a short period would have an infinite rate.
    begins, ends = ints(loads, "from_ns"), np.maximum(ints(loads, "until_ns"), ints(loads, "from_ns") + 1)
    rates = (loads["bytes_carried"] * loads["link_count"]).to_numpy(float) / (ends - begins)
    times, places = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    changes = np.bincount(places, np.concatenate([rates, -rates]), len(times))
    flown = np.concatenate([[0.0], np.cumsum(np.cumsum(changes)[:-1] * np.diff(times))])
    return np.asarray(np.interp(moments, times, flown))


@dataclass(frozen=True, slots=True)
class HostMatrix:
    """A matrix of bytes from each group of hosts to each other, [groups, groups]; nan where unknown.

    `firsts` and `lasts` are each group's hosts, `counts` the hosts that they represent, themselves included. A group is
    one host if there are few, and an entry is the traffic from one such host to another; entries of larger groups are
    their whole traffic.
    """

    bytes_carried: Floats
    firsts: Ints
    lasts: Ints
    counts: Ints


def host_matrix(traffic: pd.DataFrame, most: int) -> HostMatrix | None:
    """Return the matrix of at most `most` equally large groups; None where no bytes were sent between hosts.

    Traffic inside a host is left out, so its diagonal entry is nan, except for hosts that represent others.
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
        peers = counts[None, :] - np.eye(groups)  # a host is no peer of itself
        carried = np.divide(carried, peers, out=np.full(carried.shape, np.nan), where=peers > 0)
    starts = np.arange(groups) * a_group
    lasts = hosts[np.minimum(starts + a_group, len(hosts)) - 1]
    return HostMatrix(carried, hosts[starts], lasts, np.add.reduceat(counts, starts))
