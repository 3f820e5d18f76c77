"""Roles of spans: set where work is issued, recorded by both worlds, read by reports. The module knows no other of us.

A role is a purpose, not an operation: an exchange of ids and the packing before it share one. Reports name a span with
role "" by its kind of operation.
"""

from __future__ import annotations

from typing import NamedTuple

DENSE = "dense"
LOOKUP, CACHING, UPDATE = "lookup", "caching", "update"
SIZES, IDS, ROWS, GRADIENTS = "sizes", "ids", "rows", "gradients"
REDUCTION, TABLE_REDUCTION, REPLICAS, PARAMETERS = "reduction", "table reduction", "replicas", "parameters"
COMPRESSION, PACKING = "compression", "packing"
OPTIMIZER, SCALING = "optimizer", "scaling"
LOAD, COPY = "loading", "copy"
OTHER = "other"

# Meanings, in the order in which reports list roles.
ROLES = {
    DENSE: "the model but for its tables, forward and backward",
    LOOKUP: "rows of tables are looked up",
    CACHING: "rows are fetched into a cache before they are looked up",
    UPDATE: "rows of tables are updated, or gradients of whole tables are made",
    SIZES: "ranks tell each other how many ids will come",
    IDS: "ids travel to the ranks that look them up",
    ROWS: "rows that were looked up travel to the ranks that have the samples",
    GRADIENTS: "gradients of these rows travel back",
    REDUCTION: "gradients of parameters are reduced over ranks",
    TABLE_REDUCTION: "gradients of tables that all ranks have are reduced over them",
    REPLICAS: "replicas of tables are averaged",
    PARAMETERS: "sharded parameters are gathered for their use, or rank 0's buffers are given to all",
    COMPRESSION: "gradients are compressed, reduced so, and decompressed",
    PACKING: "values are put side by side, or apart, for an exchange",
    OPTIMIZER: "an optimizer's step",
    SCALING: "gradients are divided by the loss's scale",
    LOAD: "a data loader makes a batch",
    COPY: "a batch is copied to the device",
    OTHER: "nothing of the training, such as a checksum",
}


class Purpose(NamedTuple):
    """A purpose of an operation: its role, and the sharding type of its tables; "" if it has none."""

    role: str = ""
    sharding: str = ""


NO_PURPOSE = Purpose()
