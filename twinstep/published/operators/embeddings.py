"""Describe fbgemm's table-batched embeddings: rows of an H200's columns `T`, `E`, `D`, ..., and of others' `op`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from scenarios.seam.operations.bags import LONG_RUN, Bags, BagsBackward, BagsForward, uniform
from sim.operators.measuring import BAGS_BACKWARD_KERNELS, BAGS_FORWARD_KERNELS, EVENTS_S, GAP_S
from twinstep.published.operators.described import Described, NotDescribedError, dtype_of, first_number, whole

FORWARD, BACKWARD = "embedding forward", "embedding backward"
# NVIDIA's benchmark (benchmark_batched_dynamicemb_tables.py) has fbgemm look up ids without checking their bounds.
_UNCHECKED = "recsys-examples"


def describe(cells: Mapping[str, str], *, is_backward: bool) -> Described:
    """Describe one direction of a row with `T` tables of `E` rows and `D` columns and `B` bags of `L` ids.

    Raises:
        NotDescribedError: a number is missing or impossible.
    """
    tables, rows, dim, bags, length = (whole(cells[name], name) for name in "TEDBL")
    made = uniform(
        tables=tables,
        rows=rows,
        dim=dim,
        bags=bags,
        length=length,
        weight_dtype=dtype_of(cells["w"]),
        pooled=not _is_true(cells.get("nobag", "")),
    )
    if unique := cells.get("unique_first_table", ""):
        made = replace(made, unique=tables * whole(unique, "unique_first_table"))
    if exponent := cells.get("zipf", ""):
        made = zipf(made, _exponent(exponent))
    made = replace(made, weighted=_is_true(cells.get("weighted", "")))
    kernels = BAGS_BACKWARD_KERNELS if is_backward else BAGS_FORWARD_KERNELS
    return _describe_pass(made, cells["opt"], EVENTS_S + GAP_S * (kernels - 1), is_backward=is_backward)


def describe_named(cells: Mapping[str, str]) -> Described:
    """Describe a row with `op`, `shape`, `rows`, `dim`, `pooling_or_ids`, `unique_ids` and `notes`.

    Raises:
        NotDescribedError: the operator is not fbgemm's on the GPU's memory, or the number of ids is missing.
    """
    op, shape, ids_said = cells["op"], cells["shape"], cells.get("pooling_or_ids", "")
    if "tbe" not in op.lower():
        raise NotDescribedError(f"op '{op}': no law of such rows")
    if re.search(r"uvm|prefetch", op, re.IGNORECASE):
        raise NotDescribedError("rows in the host's memory: no law of them")
    tables = first_number(r"(\d+) tables?", shape)
    bags, rows, dim = (whole(cells.get(name, ""), name) for name in ("batch", "rows", "dim"))
    ids = first_number(r"([\d,]+) ids in all", ids_said)
    if ids is None and (length := first_number(r"([\d,]+) ids a bag", ids_said)) is not None and tables:
        ids = tables * bags * length
    if tables is None or ids is None:
        raise NotDescribedError("the row does not say how many tables or ids")
    drawn = uniform(tables=tables, rows=rows, dim=dim, bags=bags, length=max(1, round(ids / (tables * bags))))
    made = replace(drawn, ids=ids, weight_dtype=dtype_of(cells["dtype"]))
    made = replace(made, pooled=not re.search(r"sequence|none|nobag", shape))
    if unique := cells.get("unique_ids", ""):
        made = replace(made, unique=max(1, round(_number(unique, "unique_ids"))))
    notes = cells.get("notes", "")
    if found := re.search(r"alpha ([\d.]+\d)", notes):
        made = zipf(made, _exponent(found[1]))
    optimizer = re.search(r"optimizer (\w+)", notes)
    return _describe_pass(
        made,
        optimizer[1] if optimizer else "sgd",
        0.0,
        is_backward="backward" in op,
        checks_bounds=_UNCHECKED not in cells.get("source", ""),
    )


def zipf(bags: Bags, exponent: float) -> Bags:
    """Return the bags with the expected numbers of long runs under a bounded Zipf law of their rows; 0 is uniform."""
    if exponent == 0:
        return bags
    a, rows, drawn = exponent, bags.rows, bags.ids / bags.tables
    norm = ((rows + 1) ** (1 - a) - 1) / (1 - a)
    # Ids are floors of a continuous law: the first id covers all values between 1 and 2.
    longest = drawn * (2 ** (1 - a) - 1) / (1 - a) / norm
    long_runs = int((drawn / norm / LONG_RUN) ** (1 / a))
    return replace(bags, long_runs=bags.tables * min(long_runs, rows), longest=max(1, round(longest)))


def _describe_pass(
    bags: Bags, optimizer: str, beside_s: float, *, is_backward: bool, checks_bounds: bool = True
) -> Described:
    name = optimizer.lower().removeprefix("exact_")
    forward = BagsForward(bags=bags, checks_bounds=checks_bounds)
    call = BagsBackward(bags=bags, optimizer=name) if is_backward else forward
    return Described(family=BACKWARD if is_backward else FORWARD, operations=(call,), beside_s=beside_s, is_cold=True)


def _exponent(text: str) -> float:
    exponent = _number(text, "zipf")
    if exponent >= 100:
        raise NotDescribedError(f"zipf = '{text}': expected a number below 100")
    # The closed form of the sum divides by 1 - exponent.
    return exponent if exponent != 1 else 1 + 1e-9


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise NotDescribedError(f"{name} = '{text}': expected a number from 0 on")
    return number


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("true", "1", "yes")
