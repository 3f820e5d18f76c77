"""Checks that a plan's exchanges can be quantized as requested, which TorchRec 1.8.0 checks only in a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scenarios.config.scenario import Recommender, Scenario
from scenarios.quantized.codec import Codecs
from scenarios.seam.errors import ScenarioError
from scenarios.sparse.groups import ShardedGroup, TableGroup
from scenarios.sparse.sequences import SequenceGroup
from scenarios.sparse.tables import Layout


def check_quantized(scenario: Scenario, groups: Sequence[TableGroup]) -> None:
    """Refuse sums of int8, and exchanges that would split elements with a common scale.

    Raises:
        ScenarioError: with a sentence for each precision that does not fit.
    """
    qcomms = Recommender.of(scenario.workload).qcomms
    sentences = dict.fromkeys(
        f"{scenario.path}: qcomms.{direction}_precision = '{getattr(qcomms, f'{direction}_precision')}':"
        f" expected {expected}"
        for direction in ("forward", "backward")
        for group in groups
        for expected in _wrong(scenario, group, direction)
    )
    if sentences:
        raise ScenarioError(sentences)


def _wrong(scenario: Scenario, group: TableGroup, direction: str) -> Iterator[str]:
    """Yield a phrase for each mistake in a group's precision: what is expected instead."""
    adding, sent = _row_size(group.codecs.reduce_scatter, direction), _row_size(group.codecs.all_to_all, direction)
    layout, is_sequence = group.layout, isinstance(group, SequenceGroup)
    if adding > 1 and not is_sequence and layout.sharding_type.cuts_rows and layout.buckets > 1:
        tables = ", ".join(dict.fromkeys(piece.table for piece in layout.sending_order))
        yield (
            f"'fp32', 'fp16', 'bf16' or 'fp8', because sums of {layout.sharding_type} tables travel ({tables}),"
            " which int8 cannot add"
        )
    if sent == 1 or not _exchanges(layout, is_sequence, scenario.sharding_ranks):
        return
    if isinstance(group, ShardedGroup):
        batch = scenario.run.batch_size
        for owner, columns in enumerate(layout.widths):
            if batch * columns % sent:
                place = "host" if layout.sharding_type.rows_over == "host" else "rank"
                yield (
                    f"a multiple of {sent} elements for each rank, which share a scale, but {place} {owner} sends"
                    f" {batch} samples x {columns} columns of {layout.sharding_type} tables"
                )
                return
        return
    for piece in layout.sending_order:
        if piece.columns % sent:
            yield (
                f"rows of a multiple of {sent} elements, which share a scale, but of the sequence {piece.table}"
                f" rows of {piece.columns} columns travel"
            )
            return


def _row_size(codecs: Codecs, direction: str) -> int:
    codec = codecs.forward if direction == "forward" else codecs.backward
    return 1 if codec is None else codec.row_size


def _exchanges(layout: Layout, is_sequence: bool, world_size: int) -> bool:
    """Return whether an all-to-all sends the layout's rows home."""
    kind = layout.sharding_type
    if kind.rows_over == "all":
        return is_sequence and world_size > 1
    return not kind.is_copied and world_size > layout.span
