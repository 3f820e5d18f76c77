"""Sentences on stragglers and hot spots, for the terminal, the page and JSON."""

from __future__ import annotations

from typing import Any

from reports.analysis.stragglers import STRAGGLER
from reports.terminal import text

TITLE = "Stragglers and hot spots, and what they cost per step"
# One of a class of links, in sentences.
_NOUNS = {"nic": "NIC", "uplink": "leaf", "nvlink": "NVLink", "pcie": "PCIe link", "memory": "path through memory"}


def sentence(row: dict[str, Any]) -> str:
    """One row of `stragglers` in words: what it is, how far from its peers, and the time; without a full stop."""
    return _gpu(row) if row["kind"] == "gpu" else _link(row)


def _gpu(row: dict[str, Any]) -> str:
    rank = text.representative(f"rank {row['rank']}", row["count"])
    name = f"GPU {row['gpu']} of host {row['host']} ({rank})"
    more, step = _of_step(row["time_ns"] - row["median_ns"], row), text.duration(row["step_ns"])
    if row["cause"] == STRAGGLER:
        times = f"{row['ratio']:.1f} times as long as equal ones on other GPUs"
        return f"{name}: its computations take {times}; {more} of a {step} step"
    touched = f"{text.size(row['bytes'])} per step, none"
    if row["median_bytes"]:
        touched = f"{row['bytes'] / row['median_bytes']:.1f} times as many bytes as"
    longer = f"it computes {more} longer than the median rank, of a {step} step"
    return f"{name}: {row['label']} touches {touched} on the median rank; {longer}"


def _link(row: dict[str, Any]) -> str:
    name, noun = text.representative(row["name"], row["count"]), _NOUNS.get(row["kind"], row["kind"])
    per_host = " per host" if row["per_host"] else ""
    if row["cause"] == STRAGGLER:
        rate, median = text.rate(row["bytes_per_s"]), text.rate(row["median_bytes_per_s"])
        words = f"{rate}{per_host} where the median {noun} has {median}"
    else:
        carried, median = text.size(row["bytes"]), text.size(row["median_bytes"])
        words = f"carries {carried} per step{per_host and ' and host'}, the median {noun} {median}"
    needs, usual = (_of_step(row[name], row) for name in ("time_ns", "median_ns"))
    return f"{name}: {words}; needs {needs} of a {text.duration(row['step_ns'])} step, the median {noun} {usual}"


def _of_step(ns: float, row: dict[str, Any]) -> str:
    """At most the step: computations at the same time add up to more."""
    return text.duration(min(ns, row["step_ns"]))
