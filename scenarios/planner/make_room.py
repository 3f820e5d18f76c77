"""Advice on tables that do not fit, in words for the end of a sentence."""

from __future__ import annotations

from typing import Literal

from scenarios.config.scenario import Recommender, Scenario, Table
from scenarios.sharding_kind import widest_reach


def make_room(
    reach: Literal["GPU", "host", "cluster"], *, halves: bool, in_host: bool, may_leave: bool, keeps_state: bool = False
) -> str:
    """Return "; to make room: ..." with all that would help.

    Args:
        reach: the widest place over which a table may be spread.
        halves: rows have four bytes an element, which two could replace.
        in_host: the memory that is short is that of hosts.
        may_leave: rows in GPU memory could lie in host memory.
        keeps_state: the optimizer has state for each element of a table.
    """
    ways = [
        "more GPUs (cluster.hosts)" if reach == "cluster" else "row_wise, which cuts a table over all GPUs (sharding)",
        *(["16-bit rows (model.embedding_dtype = 'float16')"] if halves else []),
        *(["an optimizer without state for each element (model.optimizer.kind = 'adagrad')"] if keeps_state else []),
        *(["more host memory (cluster.host_memory)"] if in_host else []),
        *(["rows in host memory (the table's kernel = 'fused_uvm_caching')"] if may_leave else []),
    ]
    return f"; to make room: {' or '.join(filter(None, [', '.join(ways[:-1]), ways[-1]]))}"


def room_for(scenario: Scenario, *tables: Table, in_host: bool = False) -> str:
    """Return `make_room` for tables that do not fit, alone or together."""
    model = Recommender.of(scenario.workload).model
    device = scenario.cluster.host.gpu.device
    # More GPUs help several tables together, wherever each of them may lie.
    reach = "cluster" if len(tables) > 1 else widest_reach(tables[0].sharding)
    return make_room(
        reach,
        halves=model.embedding_dtype == "float32",
        keeps_state=model.optimizer.element_numbers > 0,
        in_host=in_host and device.has_own_memory,
        may_leave=not in_host and device.has_own_memory,
    )
