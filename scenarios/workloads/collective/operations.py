"""The traits of the collectives that program `collective` can call; loads no torch."""

from __future__ import annotations

from scenarios.seam.traits import TRAITS

OPERATIONS = {verb: TRAITS[verb] for verb in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")}
