"""`python -m benchmarks.measured_steps [--write | --fit]`: measured steps, and whether each is inside its range.

MLPerf's recommenders of `tests/data/published/steps.csv`, by configuration, published scripts, and the scripts of
`benchmarks.eager_steps`, which need `make .venv-benchmarks/.installed` and that environment's Python. Errors of scripts
to which the host's prices were fitted are those of prices fitted to the others; `--fit` fits them. `--write` renews
`reports/analysis/prediction/measured_steps.csv`, from which the range of every prediction follows; `--records CLONE`
also the steps of `benchmarks.records`. `--table` puts how
far off they are by kind, with published memory (`benchmarks.published_memory`), into README.md and
docs/accuracy/index.md, and by GPU into the latter.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import eager_steps, mpt_worlds, published_memory, published_scripts, records
from benchmarks.eager_steps import step_ms
from reports.analysis.prediction.measured_steps import FILE, GROUNDS, grounds, measured_steps
from reports.analysis.prediction.uncertainty import half_width
from reports.published import steps
from reports.run import Run
from scenarios.config.scenario import Scenario
from scenarios.workloads.script.command import load_given
from twinstep.published.simulated import ready_scenario, scenario_of_step, simulate_step

MLPERF = Path("tests/data/published/steps.csv")
# The configuration to which `embedding_update` of the profiles is fitted.
_FITTED = ("mlperf_dcnv2", "H100 SXM 80 GB", 1)
# To which the host's prices are fitted.
_BY_HOST = ("mlp_small", "rec_base", "rec_sgd", "rec_wide", "rec_multihot", "gpt2_fsdp2")
# Of MPT on A100 none: FlashAttention 1 is fitted to its kernels.
_PUBLISHED = (
    *("titan-01", "titan-02"),
    *("dlern50-01", "dlern50-02", "dlern50-07", "dlern50-08"),
    *("dlebert-01", "dlebert-02", "dlebert-29", "dlebert-30", "dlebert-31", "dlebert-32"),
)
# MPT on H100: models, and their smallest published world.
_MPT, _MPT_RANKS = ("1b", "3b", "7b"), 128
ROOT = Path(__file__).parent.parent
ACCURACY = ROOT / "docs" / "accuracy" / "index.md"
_BEGIN, _END = "<!-- benchmarks.measured_steps{} -->\n", "\n<!-- end -->"
_SOURCES = {
    "MLPerf": "step time: MLPerf's recommenders, 8 to 64 GPUs",
    "script": "step time: TorchRec, DDP and FSDP2 scripts, one H200",
    "BERT": "step time: BERT-large, 1 and 8 GPUs",
    "ResNet-50": "step time: ResNet-50, one GPU",
    "Llama 3": "step time: Llama 3 8B by FSDP2, 8 H100 of 500 W",
    "MPT": "step time: MPT of 1 to 7 billion parameters, 128 H100",
    "speedrun": "step time: GPT-2 under torch.compile, 8 H100",
}
_ABOUT = "# Written by python -m benchmarks.measured_steps --write\n"
_KEYS = ["scenario", "gpu", "nodes", "gpus"]
# How host prices relate to each other, in us, by a profiler: an elementwise operator 9 with its launch, a product 22 to
# 30, a node of autograd 5 to 12, all_reduce 100. Of steps that are left out, prices with one factor are 6.7 % off, and
# prices with nine factors, each weakly held at 1, 10.5 %.
RELATIVE_US = {
    "dispatch_ns": 1.0,
    "operator_ns": 5.0,
    "product_ns": 20.0,
    "pass_ns": 100.0,
    "node_ns": 8.0,
    "gradient_ns": 4.0,
    "bags_ns": 50.0,
    "call_ns": 1.0,
    "collective_ns": 90.0,
}
# The factors that are tried, and those of them that are simulated; steps in between are interpolated.
FACTORS, _SIMULATED = np.linspace(1.0, 1.6, 61), np.linspace(1.0, 1.6, 13)


def of_mlperf() -> Iterator[dict[str, Any]]:
    """Yield a row for each configuration of MLPerf's recommenders, whatever its rounds and systems."""
    simulated: dict[tuple[Any, ...], tuple[Run, str]] = {}
    rows = []
    for row in steps.read(MLPERF).rows:
        name = ready_scenario(row.model, row.round, row.system)
        scenario = scenario_of_step(name, gpu=row.gpu, nodes=row.nodes, gpus=row.gpus, global_batch=row.global_batch)
        gpu = scenario.cluster.host.gpu.name
        key = name, gpu, row.nodes, row.gpus
        if key not in simulated:
            simulated[key] = Run.of(simulate_step(scenario)), gpu
        rows.append((*key, row.step_ms))
    frame = pd.DataFrame(rows, columns=[*_KEYS, "step_ms"])
    group: Any
    for group, same in frame.groupby(_KEYS, sort=False):
        run, _ = simulated[tuple(group)]
        name, gpu, nodes, gpus = group
        step = f"{name.removeprefix('mlperf_')} {nodes}x{gpus // nodes}"
        fitted = (name, gpu, nodes) == _FITTED
        yield _row(step, "MLPerf", gpu, float(same["step_ms"].median()), run, fitted=fitted)


def of_scripts() -> Iterator[dict[str, Any]]:
    """Yield a row for each script of `benchmarks.eager_steps`."""
    measured = _measured_ms()
    with TemporaryDirectory() as folder:
        runs = {str(name): eager_steps.predict(str(name), Path(folder)) for name in measured.index}
        _, errors = fit_host({name: Path(folder, name) for name in _BY_HOST})
    for name, run in runs.items():
        gpu = run.info.scenario["cluster"]["host"]["gpu"]["name"]
        yield _row(name, "script", gpu, float(measured[name]), run) | (
            {"error": round(errors[name], 4)} if name in errors else {}
        )


def _measured_ms() -> pd.Series:
    return pd.read_csv(eager_steps.MEASURED).set_index("name")["step_ms"].dropna()


def fit_host(folders: Mapping[str, Path]) -> tuple[float, dict[str, float]]:
    """Return the factor of `RELATIVE_US` that fits all steps best, and each step's error by the factor of the others.

    An error is predicted / measured - 1; the best factor has the least sum of their squares. `folders` are those of
    predicted runs by their steps' names, in which there is the recording of the script.
    """
    measured_ms, rows = _measured_ms(), []
    for name, path in folders.items():
        scenario = load_given(path, {"profile": "hgx_h200"}, args=())
        steps_ms = [_simulated_ms(scenario, factor) for factor in _SIMULATED.tolist()]
        rows.append(np.interp(FACTORS, _SIMULATED, steps_ms) / measured_ms[name] - 1)
    errors = np.stack(rows)
    squares = errors**2
    of_others = (squares.sum(axis=0) - squares).argmin(axis=1)
    apart = errors[np.arange(len(errors)), of_others]
    return float(FACTORS[squares.sum(axis=0).argmin()]), dict(zip(folders, apart.tolist(), strict=True))


def host_prices_ns(factor: float) -> dict[str, int]:
    """Return `factor` times `RELATIVE_US` with two digits, in ns."""
    return {key: round(float(f"{1e3 * factor * price:.2g}")) for key, price in RELATIVE_US.items()}


def _print_fit() -> None:
    """Fit the host's prices, and print them and the errors of the steps that are left out."""
    with TemporaryDirectory() as folder:
        for name in _BY_HOST:
            eager_steps.predict(name, Path(folder))
        factor, errors = fit_host({name: Path(folder, name) for name in _BY_HOST})
    print(f"{factor:.2f} times what a profiler shows:", host_prices_ns(factor))
    print("left out:", *(f"{name} {error:+.1%}" for name, error in errors.items()), sep="\n")
    print(f"mean: {np.mean(np.abs(list(errors.values()))):.1%}")


def _simulated_ms(scenario: Scenario, factor: float) -> float:
    """Return the step of a script with the host's prices at `factor` times `RELATIVE_US`, in ms."""
    prices_ns = {key: round(1e3 * factor * price) for key, price in RELATIVE_US.items()}
    gpu = scenario.cluster.host.gpu
    gpu = dataclasses.replace(gpu, eager=dataclasses.replace(gpu.eager, **prices_ns))
    host = dataclasses.replace(scenario.cluster.host, gpu=gpu)
    changed = dataclasses.replace(scenario, cluster=dataclasses.replace(scenario.cluster, host=host))
    return step_ms(Run.of(simulate_step(changed)))


def of_published() -> Iterator[dict[str, Any]]:
    """Yield a row for each step of `benchmarks.published_scripts` to which nothing is fitted."""
    with TemporaryDirectory() as folder:
        for _, row in published_scripts.choose(list(_PUBLISHED), 1).iterrows():
            predicted_ms, run = published_scripts.predict(row, Path(folder))
            step = f"{row['model']} {row['hosts']}x{row['gpus_per_host']} {row['precision']}"
            gpu = run.info.scenario["cluster"]["host"]["gpu"]["name"]
            found = _row(step, row["family"], gpu, float(row["step_ms"]), run)
            yield found | {
                "predicted_ms": round(predicted_ms, 4),
                "error": round(predicted_ms / row["step_ms"] - 1, 4),
            }


def of_worlds() -> Iterator[dict[str, Any]]:
    """Yield a row for each of MPT's models on many H100."""
    with TemporaryDirectory() as folder:
        for model in _MPT:
            run = mpt_worlds.play(model, _MPT_RANKS, mpt_worlds.VOCABULARIES[0], Path(folder, model))
            measured_ms = mpt_worlds.published_ms(model, _MPT_RANKS)
            yield _row(f"MPT-{model} {_MPT_RANKS // 8}x8", "MPT", "H100 SXM 80 GB", measured_ms, run)


def of_records(clone: Path | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each record of `benchmarks.records` in a clone; without one, as the file has them."""
    if clone is None:
        rows = pd.read_csv(FILE, comment="#")
        for row in rows[rows["source"] == "speedrun"].to_dict("records"):
            yield {str(key): value for key, value in row.items()}
        return
    for record in records.read(clone):
        with TemporaryDirectory() as folder:
            yield _row(record.name, "speedrun", "H100 SXM 80 GB", record.step_ms, record.predict(Path(folder)))


def _row(step: str, source: str, gpu: str, measured_ms: float, run: Run, *, fitted: bool = False) -> dict[str, Any]:
    predicted_ms = step_ms(run)
    by = grounds(run)
    assert by is not None, "its kernels have prices"
    return {
        "step": step,
        "source": source,
        "gpu": gpu,
        "measured_ms": round(measured_ms, 4),
        "predicted_ms": round(predicted_ms, 4),
        "error": round(predicted_ms / measured_ms - 1, 4),
        "fitted": fitted,
        **{name: round(share, 4) for name, share in by.items()},
    }


def add_range(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `half_width` of the range that others give, and whether what was measured is `inside` it."""
    steps = {(one.step, one.gpu): one for one in measured_steps()}
    widths = []
    for row in frame.to_dict("records"):
        others = [one for key, one in steps.items() if key != (row["step"], row["gpu"])]
        widths.append(half_width({by: row[by] for by in GROUNDS}, row["gpu"], others))
    away = (1 / (1 + frame["error"]) - 1).abs()
    return frame.assign(half_width=widths, inside=away <= widths)


def parts(page: str, by: str = "") -> tuple[str, str, str]:
    """Return what stands before a table in a page, the table, and what stands behind it; `by` tells tables apart."""
    begin = _BEGIN.format(by)
    before, rest = page.split(begin)
    inside, after = rest.split(_END, 1)
    return before + begin, inside, _END + after


def table() -> str:
    """Return how far off steps to which nothing was fitted are, by source, and published memory, in Markdown."""
    frame = _blind_steps()
    by_source = [(about, frame[frame["source"] == source]) for source, about in _SOURCES.items()]
    rows = [_errors(about, these) for about, these in [*by_source, ("all step times", frame)]]
    memory = published_memory.compare()["error_reserved"].dropna()
    rows.append(_errors("memory reserved by torch: Llama 3 and TorchRec, published", pd.DataFrame({"error": memory})))
    return _lines("compared", rows)


def table_by_gpu() -> str:
    """Return how far off the same steps are by GPU, with the kinds of each GPU's steps, in Markdown."""
    rows = []
    for gpu, these in _blind_steps().groupby("gpu"):
        kinds = ", ".join(f"{source} ({count})" for source, count in these["source"].value_counts(sort=False).items())
        rows.append(_errors(f"{gpu} | {kinds}", these))
    return _lines("GPU | steps of", rows)


def _blind_steps() -> pd.DataFrame:
    frame = add_range(pd.read_csv(FILE, comment="#"))
    return frame[~frame["fitted"]]


def _lines(title: str, rows: list[str]) -> str:
    titles = f"| {title} | number | mean error | worst | inside the predicted range |"
    return "\n".join([titles, "|---" * (titles.count("|") - 1) + "|", *rows])


def _errors(about: str, these: pd.DataFrame) -> str:
    errors = these["error"]
    worst = float(errors.iloc[int(errors.abs().to_numpy().argmax())])
    inside = f"{these['inside'].sum()} of {len(these)}" if "inside" in these else ""
    cells = about, len(these), f"{errors.abs().mean():.1%}", f"{worst:+.1%}", inside
    return f"| {' | '.join(map(str, cells))} |".replace("%", "\N{NO-BREAK SPACE}%")


# Each table with its page and what its mark there says.
TABLES = ((ROOT / "README.md", "", table), (ACCURACY, "", table), (ACCURACY, " by GPU", table_by_gpu))


def main() -> None:
    """Print the steps with their ranges, and how many of those to which nothing was fitted are inside."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"predict all anew and write {FILE.name}; minutes")
    parser.add_argument("--records", metavar="CLONE", type=Path, help="with --write: a clone of modded-nanogpt")
    parser.add_argument("--fit", action="store_true", help="fit the host's prices and print them, only; minutes")
    parser.add_argument("--table", action="store_true", help="put the tables of errors into README.md and docs, only")
    options = parser.parse_args()
    if options.fit:
        _print_fit()
        return
    if options.table:
        for page, by, text in TABLES:
            before, _, after = parts(page.read_text(encoding="utf-8"), by)
            page.write_text(f"{before}{text()}{after}", encoding="utf-8")
        return
    if options.write:
        found = pd.DataFrame([*of_mlperf(), *of_scripts(), *of_published(), *of_worlds(), *of_records(options.records)])
        FILE.write_text(_ABOUT + found.to_csv(index=False))
    frame = add_range(pd.read_csv(FILE, comment="#"))
    shown = ["step", "gpu", "measured_ms", "predicted_ms", "error", "fitted", "half_width", "inside"]
    print(frame[shown].to_string(index=False, formatters=dict.fromkeys(["error", "half_width"], "{:.1%}".format)))
    own = frame[~frame["fitted"]]
    print(f"inside: {int(own['inside'].sum())} of {len(own)} to which nothing was fitted")
    print(f"median half width: {frame['half_width'].median():.1%}")


if __name__ == "__main__":
    main()
