"""`python -m benchmarks.side_by_side CASES.json [--markdown]`: our predictions beside those of other models.

Measuring, and predicting with ours, is left to whoever writes CASES.json; the other models predict here:

    {
      "cases": [
        {"op": "all_reduce", "size_bytes": 8388608, "hosts": 4, "ranks_per_host": 1, "nic_bytes_per_s": 25e6,
         "measured_s": 0.53, "ours_s": 0.52},
        {"op": "all_to_all", "size_bytes": 1048576, "splits": "random", "seed": 1, "skew": 0.5, "steps": [3, 4, 5], ...}
      ],
      "messages": {"25e6": [[65536, 0.0031], [1048576, 0.0442], ...]},
      "profiles": {"25e6": "emulated_200mbit.toml"}
    }

- `cases`: see `benchmarks.baselines.cases.Case`. `size_bytes` is a rank's larger buffer. `measured_s` is the median of
  what was measured, from when all have entered to when the last is through. An all-to-all's `splits` are "even" (the
  default), "random" with the scenario's `seed` and `skew` and the `steps` that were measured, or a list of matrices.
- `messages`, by `nic_bytes_per_s`: [bytes, seconds one way], the medians that the calibration measured. The alpha-beta
  model is fitted on them, and SimGrid's variants called so have the latencies and rates of the better fit.
- `profiles`, by the same: the calibrated profile, its path seen from CASES.json. SimGrid's platform is made from it.

Errors are predicted / measured - 1. Each baseline stands in the first table with the variant whose median |error| over
all cases is smallest, chosen with the measurements in hand; the second table has all variants. SimGrid is left out, and
that is said, where it is not installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict, PositiveFloat, ValidationError, model_validator
from rich.console import Console
from rich.table import Table

from benchmarks.baselines import alpha_beta, simgrid_flows
from benchmarks.baselines.alpha_beta import AlphaBeta
from benchmarks.baselines.cases import Case, calls
from reports.analysis.statistics import Errors, errors
from scenarios.config.hardware import Cluster
from scenarios.config.load import load_profile
from scenarios.seam.calls import Call
from scenarios.seam.errors import ScenarioError

OURS = "ours"
# How it is fitted, and whether an all-to-all's messages take one alpha together.
ALPHA_BETA: dict[str, tuple[Callable[[Messages], AlphaBeta], bool]] = {
    "alpha-beta": (alpha_beta.fit, False),
    "alpha-beta, overlapped": (alpha_beta.fit, True),
    "alpha-beta of the ends": (alpha_beta.fit_ends, False),
    "alpha-beta of the ends, overlapped": (alpha_beta.fit_ends, True),
}
SIMGRID = {f"SimGrid, {variant}": variant for variant in simgrid_flows.VARIANTS}
ALL = "all"
_WIDTH = 120
_COLUMNS = ("op", "model", "cases", "median", "median |.|", "95 % |.|", "worst |.|")

Messages = Sequence[tuple[float, float]]
Predictions = Mapping[str, Sequence[float]]


class Given(BaseModel):
    """The input as it stands in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cases: list[Case]
    messages: dict[float, list[tuple[float, PositiveFloat]]]
    profiles: dict[float, str]

    @model_validator(mode="after")
    def _check_rates(self) -> Given:
        for name, known in (("messages", self.messages), ("profiles", self.profiles)):
            missing = sorted({case.nic_bytes_per_s for case in self.cases} - set(known))
            if missing:
                raise ValueError(f"{name}: expected an entry for nic_bytes_per_s = {missing[0]:g}")
        return self


def errors_of(predicted_s: Sequence[float], measured_s: Sequence[float]) -> Errors:
    """Relative ones; of one case or more."""
    return errors([one / other - 1 for one, other in zip(predicted_s, measured_s, strict=True)])


def read(path: Path) -> Given:
    """The file, checked.

    Raises:
        ScenarioError: with a sentence for every mistake in it.
    """
    try:
        return Given.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        places = [(".".join(map(str, one["loc"])) or "the whole", one["msg"]) for one in error.errors()]
        raise ScenarioError("\n".join(f"{path}: {place}: {sentence}" for place, sentence in places)) from None


def predict_alpha_beta(cases: Sequence[Case], messages: Mapping[float, Messages]) -> dict[str, list[float]]:
    """Seconds by variant, in the order of the cases."""
    return {
        name: [
            median(
                alpha_beta.predict(
                    fit(messages[case.nic_bytes_per_s]),
                    case.op,
                    case.size_bytes,
                    case.world_size,
                    case.ranks_per_host,
                    matrix,
                    overlapped=overlapped,
                )
                for matrix in case.matrices()
            )
            for case in cases
        ]
        for name, (fit, overlapped) in ALPHA_BETA.items()
    }


def predict_simgrid(
    cases: Sequence[Case], profiles: Mapping[float, Cluster], models: Mapping[float, AlphaBeta]
) -> dict[str, list[float]]:
    """Seconds by variant, in the order of the cases.

    Raises:
        AbsentError: SimGrid is not installed.
    """
    asked: list[tuple[Cluster, Sequence[Call], str]] = []
    whose: list[tuple[str, int]] = []
    for name, variant in SIMGRID.items():
        for index, case in enumerate(cases):
            profile, model = profiles[case.nic_bytes_per_s], models[case.nic_bytes_per_s]
            cluster = simgrid_flows.VARIANTS[variant].platform(case.platform(profile), model)
            for matrix in case.matrices():
                asked.append((cluster, calls(case.op, case.size_bytes, case.world_size, matrix), variant))
                whose.append((name, index))
    seconds: dict[tuple[str, int], list[float]] = {}
    for key, one_s in zip(whose, simgrid_flows.predict_all(asked), strict=True):
        seconds.setdefault(key, []).append(one_s)
    return {name: [median(seconds[name, index]) for index in range(len(cases))] for name in SIMGRID}


def best(predictions: Predictions, measured_s: Sequence[float]) -> str:
    """The variant with the smallest median |error|."""
    return min(predictions, key=lambda name: errors_of(predictions[name], measured_s).median)


def rows(cases: Sequence[Case], predictions: Predictions) -> Iterator[tuple[str, str, int, Errors]]:
    """By op in the order of the cases, then over all; each op has all models."""
    for op in (*dict.fromkeys(case.op for case in cases), ALL):
        chosen = [index for index, case in enumerate(cases) if op in (case.op, ALL)]
        for name, predicted_s in predictions.items():
            measured_s = [cases[index].measured_s for index in chosen]
            yield op, name, len(chosen), errors_of([predicted_s[index] for index in chosen], measured_s)


def cells(op: str, name: str, count: int, found: Errors) -> list[str]:
    """A row of text."""
    shares = [f"{100 * share:.1f} %" for share in (found.median, found.p95, abs(found.worst))]
    return [op, name, str(count), f"{100 * found.signed_median:+.1f} %", *shares]


def show(title: str, table: Sequence[Sequence[str]], markdown: bool) -> None:
    """A table to read in a terminal or to paste into a document."""
    if markdown:
        ruler = ["---" if index < 2 else "---:" for index in range(len(_COLUMNS))]
        head = [column.replace("|", "\\|") for column in _COLUMNS]
        print(f"{title}\n")
        print("\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *table)) + "\n")
        return
    drawn = Table(title=title, title_justify="left")
    for index, column in enumerate(_COLUMNS):
        drawn.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for before, line in zip([None, *table], table, strict=False):
        if before is not None and before[0] != line[0]:
            drawn.add_section()
        drawn.add_row(*line)
    Console(width=_WIDTH).print(drawn)


def compare(path: Path, markdown: bool) -> None:
    """Predict with all models, and show."""
    given = read(path)
    profiles = {rate: load_profile(str(path.parent / name)) for rate, name in given.profiles.items()}
    for rate, profile in profiles.items():
        if profile.host.nics.link.bytes_per_s != rate:
            found = profile.host.nics.link.bytes_per_s
            raise ScenarioError(f"{given.profiles[rate]}: the NIC's rate is {found:g} B/s: expected {rate:g}")
    measured_s = [case.measured_s for case in given.cases]
    ours = {OURS: [case.ours_s for case in given.cases]}
    baselines = [predict_alpha_beta(given.cases, given.messages)]
    fit, _ = ALPHA_BETA[best(baselines[0], measured_s)]
    models = {rate: fit(messages) for rate, messages in given.messages.items()}
    try:
        baselines.append(predict_simgrid(given.cases, profiles, models))
    except simgrid_flows.AbsentError as error:
        print(f"without SimGrid: {error}", file=sys.stderr)
    winners = {name: variants[name] for variants in baselines for name in [best(variants, measured_s)]}
    everything = ours | {name: predicted for variants in baselines for name, predicted in variants.items()}
    chosen = [cells(*row) for row in rows(given.cases, ours | winners)]
    overall = [cells(*row) for row in rows(given.cases, everything) if row[0] == ALL]
    show("Predicted over measured, less 1; each baseline's better variant", chosen, markdown)
    show("All variants", overall, markdown)
    for rate, model in models.items():
        beta = f"1/beta {1e-6 / model.beta_s_per_byte:.2f} MB/s" if model.beta_s_per_byte else "beta 0"
        print(f"{rate * 1e-6:g} MB/s: alpha {1e6 * model.alpha_s:.1f} us, {beta}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__.split("\n")[0])
    parser.add_argument("cases", type=Path)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    try:
        compare(options.cases, options.markdown)
    except ScenarioError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
