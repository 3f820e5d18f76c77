"""Finds the ready profile whose GPU has a given name, as the maker writes it or in another spelling."""

from __future__ import annotations

import re
from functools import cache

from scenarios.config.catalogue import TEMPLATE, profile_names
from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError

# Form factors of GPUs without NVSwitch.
_CARDS = frozenset({"PCIE", "NVL"})


def profile_of(gpu: str, gpus_per_node: int) -> str:
    """Return the ready profile of this GPU: form factor first, then most words in common, then the best host size.

    A name may be NVIDIA's own, such as "NVIDIA H100-SXM5-80GB". PCIe or NVL in a name means a card; a name without a
    form factor prefers a GPU that is no card. The best host has just enough GPUs, else as many as possible.

    Raises:
        ScenarioError: no ready profile has such a GPU.
    """
    wanted, known = _words_of(gpu), _gpus_of_profiles()
    candidates = {name: words for name, (words, _) in known.items() if words[0] in wanted}
    if not candidates:
        names = ", ".join(sorted({words[0] for words, _ in known.values()}))
        raise ScenarioError([f"gpu = '{gpu}': expected one that a ready profile has ({names}), or a profile"])

    def distance(name: str) -> tuple[bool, int, bool, int]:
        gpus = known[name][1]
        common = len(set(wanted) & set(candidates[name]))
        is_other_form = _CARDS.isdisjoint(candidates[name]) != _CARDS.isdisjoint(wanted)
        return is_other_form, -common, gpus < gpus_per_node, abs(gpus - gpus_per_node)

    return min(candidates, key=distance)


@cache
def _gpus_of_profiles() -> dict[str, tuple[list[str], int]]:
    """Map each ready profile to the words of its GPU's name and the number of GPUs of a host."""
    known = {}
    for name in profile_names():
        host = load_profile(name).host
        if host.gpu.device.is_launched and name != TEMPLATE:
            known[name] = _words_of(host.gpu.name), host.gpus
    return known


def _words_of(gpu: str) -> list[str]:
    """Return names, form factors and gigabytes of a GPU's name: H100, SXM, 80 of "H100-SXM5-80GB"."""
    return [re.sub(r"^(SXM)\d+$", r"\1", word) for word in re.findall(r"[A-Z]+\d+[A-Z]?|[A-Z]+|\d+", gpu.upper())]
