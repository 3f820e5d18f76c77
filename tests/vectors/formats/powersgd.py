"""What torch's PowerSGD hooks did, step by step: results, factors, errors, draws, traffic, statistics, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor

from tests.contract.worlds import WORLDS
from tests.vectors.fields import (
    COUNT,
    FLAG,
    NUMBER,
    SIZE,
    TEXT,
    Each,
    Fields,
    Is,
    Maybe,
    VectorError,
    one_of,
    whole_from,
)
from tests.vectors.files import Case, Check, File, Format
from tests.vectors.formats.powersgd_steps import ALGORITHMS, Inputs, Played, Reduced, train
from tests.vectors.plays import Outcome

# Relative to the largest recorded element.
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2, "bfloat16": 5e-2}
RECORDED = "shim213 (torch 2.13 hook; _orthogonalize accepts 2-D). For layerwise the shim is a no-op = shipped code."

REFUSAL = Maybe(Fields({"where": TEXT, "type": one_of("ValueError", "AssertionError"), "msg": TEXT}))
# From another implementation; a text says why there is none. Not replayed: ours are held against the arrays.
DEVIATION = Is("a number, a text or null", lambda given: given is None or type(given) in (int, float, str))
ERROR = Maybe(Fields({"where": TEXT, "type": TEXT, "msg": TEXT}))
STATE = Fields(
    {},
    {
        "matrix_approximation_rank": SIZE,
        "start_powerSGD_iter": COUNT,
        "min_compression_rate": NUMBER,
        "use_error_feedback": FLAG,
        "warm_start": FLAG,
        "orthogonalization_epsilon": NUMBER,
        "random_seed": COUNT,
        "compression_stats_logging_frequency": COUNT,
        "batch_tensors_with_same_shape": FLAG,
    },
)
BUCKET = Fields(
    {
        "bucket": COUNT,
        "is_last": FLAG,
        "param_order": Each(COUNT),
        "numel": COUNT,
        "n_draws": COUNT,
        "out_equal_on_all_ranks": one_of(True),
        "compressed": FLAG,
    }
)
REDUCED = Is(
    "[elements, dtype, bytes, function]",
    lambda row: isinstance(row, list) and [type(item) for item in row] == [int, str, int, str],
)
STEP = Fields({"iter_before": COUNT, "iter_after": COUNT, "allreduce": Each(REDUCED), "buckets": Each(BUCKET)})
CASE = Fields(
    {
        "id": TEXT,
        "ws": SIZE,
        "hook": one_of(*ALGORITHMS),
        "param_shapes": Each(Each(COUNT)),
        "dtype": one_of(*TOLERANCE),
        "steps_requested": COUNT,
        "steps_recorded": COUNT,
        "data": TEXT,
        "data_seed": COUNT,
        "zero_at": Maybe(COUNT),
        "bucket_cap_mb": Maybe(NUMBER),
        "state_kwargs": STATE,
        "error_shim213": REFUSAL,
        "error_v111": ERROR,
        "error_shipped213": ERROR,
        "compression_stats": Maybe(Each(NUMBER)),
        "steps": Each(STEP),
    },
    {
        "has_nan": FLAG,
        "outputs_equal_on_all_ranks": one_of(True),
        "max_rel_diff_numpy_float64_ref": DEVIATION,
        "max_rel_diff_v111": DEVIATION,
        "stats_ref": Maybe(Each(whole_from(0))),
    },
)


@dataclass(frozen=True)
class Expected:
    """A case with its arrays."""

    case: Case
    arrays: dict[str, Tensor]

    def array(self, step: int, bucket: int, name: str) -> Tensor | None:
        return self.arrays.get(f"s{step}/b{bucket}/{name}")

    @property
    def rows(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(step, bucket, row) of all reductions."""
        return [(at, row["bucket"], row) for at, step in enumerate(self.case["steps"]) for row in step["buckets"]]

    @property
    def inputs(self) -> Inputs:
        found = {(step, bucket): self.array(step, bucket, "in") for step, bucket, _ in self.rows}
        return Inputs(self.case, {key: array for key, array in found.items() if array is not None})

    def close(self, actual: Tensor, recorded: Tensor, where: str, part_of: Tensor | None = None) -> None:
        """Of the recorded dtype, and within its tolerance of the largest number in it, or in what it is `part_of`."""
        assert actual.dtype == recorded.dtype, where
        bound = TOLERANCE[self.case["dtype"]] * max(map(largest, (recorded, recorded if part_of is None else part_of)))
        torch.testing.assert_close(
            actual.double(), recorded.double(), rtol=0, atol=bound, equal_nan=True, msg=lambda text: f"{where}: {text}"
        )


def largest(values: Tensor) -> float:
    """NaN is none."""
    return values.double().abs().nan_to_num(0).max().item() if values.numel() else 0.0


def check(expected: Expected, outcome: Callable[[], Outcome]) -> None:
    case, played = expected.case, outcome()
    ranks: list[Played] = played.returned
    check_refusals(case, [rank.refusal for rank in ranks])
    recorded = [row for step in case["steps"] for row in step["allreduce"]]
    assert all(size == numel * getattr(torch, dtype).itemsize for numel, dtype, size, _ in recorded)
    rows = [(size, dtype) for _, dtype, size, _ in recorded]
    for rank, spans in enumerate(played.spans):
        reductions = [(span.bytes_in, span.dtype) for span in spans if span.kind != "compute"]
        assert reductions == rows, f"rank {rank}"
    for rank, one in enumerate(ranks):
        check_rank(expected, rank, one)
        for mine, first in zip(outputs_of(one), outputs_of(ranks[0]), strict=True):
            torch.testing.assert_close(mine, first, rtol=0, atol=0, equal_nan=True)
    has_nan = any(bool(output.isnan().any()) for output in outputs_of(ranks[0]))
    assert has_nan == case.get("has_nan", False)


def outputs_of(played: Played) -> list[Tensor]:
    return [bucket.output for step in played.steps for bucket in step]


def check_rank(expected: Expected, rank: int, played: Played) -> None:
    case = expected.case
    assert played.iters == [(step["iter_before"], step["iter_after"]) for step in case["steps"]]
    assert (None if played.stats is None else list(played.stats)) == case["compression_stats"]
    found = [bucket for step in played.steps for bucket in step]
    for (step, bucket, row), reduced in zip(expected.rows, found, strict=True):
        check_bucket(expected, rank, (step, bucket), row, reduced)


def check_bucket(expected: Expected, rank: int, place: tuple[int, int], row: dict[str, Any], reduced: Reduced) -> None:
    case, where = expected.case, f"rank {rank}, step {place[0]}, bucket {place[1]}"
    output = expected.array(*place, "out")
    assert output is not None
    expected.close(reduced.output, output, where)
    assert reduced.seeds == (1 if takes_seed(case, place, row) else 0), where
    draws = [expected.array(*place, f"draw{number}") for number in range(row["n_draws"])]
    assert len(reduced.draws) == len(draws), where
    for number, (ours, theirs) in enumerate(zip(reduced.draws, draws, strict=True)):
        if theirs is None:
            raise VectorError(f"{where}: the array draw{number} is missing")
        assert torch.equal(ours.reshape(-1), theirs.reshape(-1)), where
    for name in kept_by(case, place[0], row):
        array, mine = expected.array(*place, name), reduced.memory[name]
        if array is None:
            if mine.numel():  # where nothing is a matrix there is nothing to store
                raise VectorError(f"{where}: the array {name} is missing")
            continue
        # An error is what is left of numbers as large as the output, and so is its rounding.
        recorded, whole = (array[rank], output) if name == "err" else (array, None)
        expected.close(mine, recorded.reshape(-1), f"{where}, {name}", whole)


def takes_seed(case: Case, place: tuple[int, int], row: dict[str, Any]) -> bool:
    """One integer of the RandomState for each call that draws, whatever the number of draws in it: also for none."""
    step, bucket = place
    before = [other["compressed"] for earlier in case["steps"][:step] for other in earlier["buckets"][bucket:][:1]]
    return row["compressed"] and (not case["state_kwargs"].get("warm_start", True) or not any(before))


def check_refusals(case: Case, refusals: list[str]) -> None:
    """A state that cannot be, or a rank beyond the side of the square: the same sentence everywhere."""
    assert refusals == [refusal_of(case)] * case["ws"]


def refusal_of(case: Case) -> str:
    error, options = case["error_shim213"], case["state_kwargs"]
    if error is None:
        return ""
    if error["where"] == "PowerSGDState":
        return (
            f"start_powerSGD_iter = {options['start_powerSGD_iter']}: expected 2 or more with use_error_feedback or"
            " warm_start, whose memory is by bucket, and DDP changes its buckets after the first step"
        )
    numel = sum(prod(shape) for shape in case["param_shapes"])
    return (
        f"bucket 0: matrix_approximation_rank = {options['matrix_approximation_rank']}: expected"
        f" {isqrt(numel - 1) + 1} or less, the side of the square that holds {numel} elements"
    )


def check_case(expected: Expected, where: str) -> None:
    """What is said twice must agree, and every array must be one that is looked at."""
    case, error = expected.case, expected.case["error_shim213"]
    last = len(case["steps"])
    if case["steps_recorded"] != last or (case["steps_requested"] == last) != (error is None):
        raise VectorError(f"{where}.steps: {last} steps, expected steps_recorded, and steps_requested without an error")
    if error and error["where"] not in ("PowerSGDState", f"step {last}"):
        raise VectorError(f"{where}.error_shim213.where = {error['where']!r}: expected PowerSGDState or step {last}")
    stats = case["compression_stats"]
    if error is None and case.get("stats_ref") not in (None, stats and stats[1:]):
        raise VectorError(f"{where}.stats_ref = {case['stats_ref']}: expected those of compression_stats {stats}")
    start = case["state_kwargs"].get("start_powerSGD_iter", 1000)
    known: set[str] = set()
    for step, rows in enumerate(case["steps"]):
        check_buckets(case, rows["buckets"], f"{where}.steps[{step}].buckets")
    for step, bucket, row in expected.rows:
        if row["compressed"] != (case["steps"][step]["iter_before"] >= start):
            raise VectorError(f"{where}: step {step}, bucket {bucket}: compressed = {row['compressed']}")
        known |= check_arrays(expected, (step, bucket), row, where)
    if unknown := sorted(set(expected.arrays) - known):
        raise VectorError(f"{where}: the array {unknown[0]} belongs to no step and bucket")


def check_buckets(case: Case, rows: list[dict[str, Any]], where: str) -> None:
    """Numbered one after the other, the last one marked, each as long as its parameters."""
    found = [(row["bucket"], row["is_last"]) for row in rows]
    numbered = [(index, index == len(rows) - 1) for index in range(len(rows))]
    if not rows or found != numbered:
        raise VectorError(f"{where}: (bucket, is_last) are {found}, expected {numbered or 'one or more'}")
    shapes, members = case["param_shapes"], [member for row in rows for member in row["param_order"]]
    if sorted(members) != list(range(len(shapes))):
        raise VectorError(f"{where}: param_order names {members}, expected each of the {len(shapes)} parameters once")
    for row in rows:
        numel = sum(prod(shapes[member]) for member in row["param_order"])
        if row["numel"] != numel:
            raise VectorError(f"{where}[{row['bucket']}].numel = {row['numel']}: expected {numel} of its parameters")


def check_arrays(expected: Expected, place: tuple[int, int], row: dict[str, Any], where: str) -> set[str]:
    """The names of a bucket's arrays; what must be there is, in its shape, and nothing else."""
    ranks, numel = expected.case["ws"], row["numel"]
    shapes = {"in": (ranks, numel), "out": (numel,)}
    for name, shape in shapes.items():
        array = expected.array(*place, name)
        if array is None or tuple(array.shape) != shape:
            found = "none" if array is None else tuple(array.shape)
            raise VectorError(f"{where}: the array s{place[0]}/b{place[1]}/{name} is {found}, expected {shape}")
    names = [*shapes, *kept_by(expected.case, place[0], row), *(f"draw{number}" for number in range(row["n_draws"]))]
    return {f"s{place[0]}/b{place[1]}/{name}" for name in names}


def kept_by(case: Case, step: int, row: dict[str, Any]) -> list[str]:
    """What the recorder wrote down of a state after a step."""
    options, is_last = case["state_kwargs"], step == case["steps_requested"] - 1
    if not row["compressed"]:
        return []
    factors = ["p", "q"] if case["hook"] == "batched_powerSGD_hook" else ["q"]
    errors = ["err"] if is_last and options.get("use_error_feedback", True) else []
    return (factors if options.get("warm_start", True) else []) + errors


def replays(file: File, where: str, case: Case) -> Iterator[tuple[str, Check]]:
    CASE.check(case, where)
    start, dtype = f"{case['id']}/", getattr(torch, case["dtype"])
    own = {name.removeprefix(start): array for name, array in file.arrays.items() if name.startswith(start)}
    expected = Expected(case, {name: torch.from_numpy(array).to(dtype) for name, array in own.items()})
    check_case(expected, where)
    for world in WORLDS:
        yield world, partial(check, expected, file.batch(world, 1, case["ws"]).add(train, expected.inputs))


FORMAT = Format(
    name="powersgd",
    cases="cases",
    signature=frozenset({"hook", "state_kwargs", "steps"}),
    head={
        "what": TEXT,
        "torch": TEXT,
        "recorded_impl": one_of(RECORDED),
        "layout": TEXT,
        "notes": Each(TEXT),
    },
    replays=replays,
    has_arrays=True,
)
