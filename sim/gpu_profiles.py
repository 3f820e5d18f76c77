"""Finds the ready profile that has a GPU of which somebody gives a name, in its maker's words or others."""

from __future__ import annotations

import re
from functools import cache

from scenarios.config.catalogue import TEMPLATE, profile_names
from scenarios.config.load import load_profile
from scenarios.seam.errors import ScenarioError

# Forms of GPUs without NVSwitch.
_CARDS = frozenset({"PCIE", "NVL"})


def profile_of(gpu: str, gpus_per_node: int) -> str:
    """The ready profile with this GPU: a card or not, as many words of its name as possible, then a host that fits.

    A name may be NVIDIA's own, such as "NVIDIA H100-SXM5-80GB"; one with PCIe or NVL in it is that of a card, one that
    says no form is not, if there is another. Hosts fit best that have just enough GPUs, else as many as possible.

    Raises:
        ScenarioError: no ready profile has such a GPU.
    """
    wanted, known = _words_of(gpu), _gpus_of_profiles()
    alike = {name: words for name, (words, _) in known.items() if words[0] in wanted}
    if not alike:
        names = ", ".join(sorted({words[0] for words, _ in known.values()}))
        raise ScenarioError([f"gpu = '{gpu}': expected one that a ready profile has ({names}), or a profile"])

    def unlike(name: str) -> tuple[bool, int, bool, int]:
        gpus = known[name][1]
        common = len(set(wanted) & set(alike[name]))
        is_other_form = _CARDS.isdisjoint(alike[name]) != _CARDS.isdisjoint(wanted)
        return is_other_form, -common, gpus < gpus_per_node, abs(gpus - gpus_per_node)

    return min(alike, key=unlike)


@cache
def _gpus_of_profiles() -> dict[str, tuple[list[str], int]]:
    """Of each ready profile the words of its GPU's name, and how many a host has."""
    known = {}
    for name in profile_names():
        host = load_profile(name).host
        if host.gpu.device.is_launched and name != TEMPLATE:
            known[name] = _words_of(host.gpu.name), host.gpus
    return known


def _words_of(gpu: str) -> list[str]:
    """Names, forms and gigabytes in a GPU's name: of "H100-SXM5-80GB" H100, SXM, 80."""
    return [re.sub(r"^(SXM)\d+$", r"\1", word) for word in re.findall(r"[A-Z]+\d+[A-Z]?|[A-Z]+|\d+", gpu.upper())]
