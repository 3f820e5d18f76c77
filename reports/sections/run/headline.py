"""A few lines on a run: the headline of tables and pages, and its representation in a Python session."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.analysis.frames import memory_at_peak
from reports.analysis.prediction.costs import costs, prices_of
from reports.analysis.prediction.uncertainty import on_gpus, uncertainty
from reports.analysis.step_breakdown import (
    steady_kept,
    steady_steps,
    sync_period,
    timed_steps,
    typical_step,
    unrecorded_steps,
    utilisation_of,
)
from reports.analysis.step_times import LEAST_EXCESS, SETTLED
from reports.run import Run
from reports.sections.run.causes import launching, waiting
from reports.sections.run.uncertainty import bar, why
from reports.terminal import text
from reports.terminal.rows import represent_rows
from scenarios.seam.memory import remedy
from scenarios.seam.trace import EMULATED_HOSTS, RunInfo

WORLDS = {"sim": "predicted", "real": "measured"}
_PAYLOADS = {"sizes": "payload: shapes only"}
# The prefix of the note on the gain and duration of a plan search.
OF_SEARCH = "plan: the fastest of "
# The share of a step with the GPU waiting for launches, from which the host is called its bound.
_BOUND = 0.25
_MOST_ADVICE = 2
# The end of the words on data loading that no step waits for.
HIDDEN = ", hidden"
# A smaller share would be printed as 0.0 %.
_LEAST_DIGIT = 0.0005


def headline(run: Run, spread: str = "") -> list[str]:
    """Return lines on a run's identity and step time; `spread` is a line on how steps vary from run to run."""
    info, timed = run.info, timed_steps(run)
    keys = ("library", "payload", "fidelity") if info.world == "sim" else ("library", "payload")
    given = [(key, info.scenario[key]) for key in keys if key in info.scenario]
    lines = [", ".join([identity(run), *(_PAYLOADS.get(value, f"{key} {value}") for key, value in given)])]
    if info.world == "sim" and (times := info.scenario.get("compute_times")):
        lines.append(f"compute times: measured ones from {text.printable(times['path'])}, roofline for the rest")
    if figures := rests_on(info):
        lines.append(text.printable(figures))
    lines += filter(None, [without_a_law(run)])
    lines += [text.printable(note) for note in info.plan_notes if note.startswith(OF_SEARCH)]
    if info.host_counts:
        lines.append(folding_line(info))
    lines += ended_early(info)
    if info.thinned is not None:
        lines.append(thinning_line(info))
        if info.thinned.ranks:
            lines.append("waiting for ranks without kept spans counts as transfer")
    lines += filter(None, [warm_up(run)])
    if len(timed):
        lines += [
            *_step_time(timed, run),
            *on_cpu(run.info),
            *tell_left_out(run.info),
            *sync_words(run),
            *arithmetic(run),
        ]
        idle = bound_by_host(run)
        lines += [*filter(None, [idle]), *would_help(info, is_bound_by_host=bool(idle))]
        lines += filter(None, [costs_line(run), waiting(run, steady_kept(run))])
    if spread:
        lines.append(spread)
    return [*lines, *filter(None, [fits(run)])]


def identity(run: Run) -> str:
    """Return a run's name, whether it is predicted or measured, and its ranks and hosts."""
    info = run.info
    hosts = len(info.hosts) if info.world == "real" and info.hosts else run.outline.hosts
    host = "emulated host" if info.played_on == EMULATED_HOSTS else "host"
    where = f"{text.count_words(info.world_size, 'rank')} on {text.count_words(hosts, host)}"
    if info.host_counts:
        where = f"{text.count_words(info.world_size, 'rank')} on {text.count_words(_hosts(info), host)}"
    elif run.outline.is_folded:
        where = f"{text.count_words(info.world_size, 'rank')}, identical ranks simulated once"
    return f"{info.name}: {WORLDS.get(info.world, info.world)}, {where}"


def ended_early(info: RunInfo) -> list[str]:
    """Return a line on why a run ended early; [] if it is complete."""
    return [] if info.complete else [f"THIS RUN ENDED EARLY: {info.error or 'for an unknown reason'}"]


def bound_by_host(run: Run) -> str:
    """Return how long the GPU of a predicted step waits for its host; "" where that is little."""
    step = typical_step(run) if run.info.world == "sim" and on_gpus(run) else None
    if step is None:
        return ""
    idle = launching(run, step)
    said = f"bound by the host: GPU idle {text.percent(idle)} of the step, waiting for launches"
    return said if idle >= _BOUND else ""


def would_help(info: RunInfo, *, is_bound_by_host: bool) -> list[str]:
    """Return a line on the savings of each of the best program changes, and on why others cannot help; [] if unknown.

    `is_bound_by_host`: changes that the program cannot have would relieve the host, so they are reported only then.
    """
    lines, saving = [], [one for one in info.advice if one.saved_ns > 0]
    for one in saving[:_MOST_ADVICE]:
        saved = f"would help: {one.change}: -{text.duration(one.saved_ns)} ({text.signed_percent(-one.share)})"
        lines.append(", ".join(filter(None, (saved, one.made_by))))
    if is_bound_by_host:
        lines += [f"cannot help: {one.change}: {one.made_by}" for one in info.advice if one.saved_ns <= 0]
    return [*map(text.printable, lines)]


def kernel_shares(run: Run) -> dict[str, float] | None:
    """Return the share of a step's kernel time by how kernels are priced, the largest first; None without kernels."""
    if not len(run.kernels):
        return None
    found = run.kernels.groupby("priced_by")["share"].sum().sort_values(ascending=False, kind="stable")
    return {str(name): float(share) for name, share in found.items()}


def without_a_law(run: Run) -> str:
    """Return a line on the share of a step's kernel time that a roofline prices; "" if none."""
    share = (kernel_shares(run) or {}).get("roofline", 0.0)
    if not share:
        return ""
    said = text.percent(share) if share >= _LEAST_DIGIT else f"under {text.percent(2 * _LEAST_DIGIT)}"
    return f"kernels without a law, priced by a roofline: {said} of a step's kernel time"


def fits(run: Run) -> str:
    """Return whether memory fits the fullest rank's GPU, and a remedy if not; "" if nothing was recorded."""
    if not len(run.rank_memory):
        return ""
    fullest = run.rank_memory.head(1)
    (rank,), free_bytes = represent_rows(fullest), float(fullest["free_bytes"].iloc[0])
    if free_bytes >= 0:
        return f"memory: fits with {text.size(free_bytes)} to spare on the fullest rank ({rank})"
    held = memory_at_peak(run.memory, fullest)
    what = remedy(zip(*(held[name].tolist() for name in ("part", "kind", "size_bytes")), strict=True))
    return f"MEMORY DOES NOT FIT: {text.size(-free_bytes)} too much on the fullest rank ({rank}); expected {what}"


def rests_on(info: RunInfo) -> str:
    """Return the sources of a prediction's figures, and whether its work is balanced; "" if measured or unknown."""
    if info.world != "sim":
        return ""
    known = info.scenario.get("rests_on")
    balanced = "work perfectly balanced (run.balanced)" if info.scenario.get("balanced") else ""
    return "; ".join(words for words in (known, balanced) if isinstance(words, str) and words)


def warm_up(run: Run) -> str:
    """Return which first steps of a measured run are left out of all means, in one line; "" if none are.

    Two steps do not suffice to decide it, which the line states if the first took longer.
    """
    if not run.warm_up:
        return _untold_warm_up(run)
    verb = "is" if len(run.warm_up) == 1 else "are"
    longest = text.duration(float(run.steps.loc[run.steps["warm_up"].to_numpy(bool), "step_ns"].max()))
    return f"{text.steps(run.warm_up)} {verb} warm-up (up to {longest}), left out of means"


def _untold_warm_up(run: Run) -> str:
    times = run.steps.loc[run.steps["steady"].to_numpy(bool), "step_ns"].tolist()
    if run.info.world != "real" or len(times) != SETTLED or times[0] <= (1 + LEAST_EXCESS) * times[1]:
        return ""
    took = f"{text.duration(float(times[0]))}, the second {text.duration(float(times[1]))}"
    return f"the first step took {took}: it may be warm-up, which 3 or more steps would show, and is in the median"


def folding_line(info: RunInfo) -> str:
    """Return how many representative hosts were simulated for all, in one line; "" if every host was."""
    if not info.host_counts:
        return ""
    hosts = text.count_words(len(info.host_counts), "representative host")
    return f"{text.count_words(info.world_size, 'rank')}, simulated as {hosts}"


def _hosts(info: RunInfo) -> int:
    return sum(count for _, count in info.host_counts)


def thinning_line(info: RunInfo) -> str:
    """Return which spans of a run were left out, in one line; "" if none."""
    kept = info.thinned
    if kept is None:
        return ""
    ranks = "all ranks" if kept.ranks is None else _of_ranks(kept.ranks, info)
    steps = "" if kept.steps is None else f" in {text.count_words(len(kept.steps), 'step')}"
    return f"spans kept of {ranks}{steps}; {text.count_words(kept.left_out, 'other')} left out"


def _of_ranks(ranks: Sequence[int], info: RunInfo) -> str:
    """Return how many of all ranks these are; representatives count with the ranks that they represent."""
    count = len(ranks)
    if info.host_counts:
        ranks_of_host, count_of = info.world_size // _hosts(info), dict(info.host_counts)
        count = sum(count_of.get(rank // ranks_of_host, 0) for rank in ranks)
    return f"{count:,} of {info.world_size:,} ranks"


def of_recording(run: Run) -> str:
    """Return whether the step time of a script's run on real ranks includes the recording's overhead, in words.

    The result is "" for other runs, and for runs on CPUs where no step was timed without.
    """
    scenario = run.info.scenario
    if len(unrecorded_steps(run)):
        took = text.duration(float(steady_steps(run.steps)["step_ns"].median()))
        return f"timed with the recording off; {took} with every call recorded"
    if run.info.world == "real" and scenario.get("program") == "script" and scenario.get("library") == "nccl":
        return "this time includes recording every call: no steps were timed with the recording off"
    return ""


def remarks(run: Run) -> list[str]:
    """Return what else to know of a run's times: ranks simulated once, spans left out, warm-up, recording."""
    return list(filter(None, (folding_line(run.info), thinning_line(run.info), warm_up(run), of_recording(run))))


def _step_time(timed: pd.DataFrame, run: Run) -> list[str]:
    numbers = timed["step"].tolist()
    of = text.steps(numbers) if len(numbers) == 1 else f"the median of {text.steps(numbers)}"
    known = uncertainty(run)
    took = " ".join(filter(None, (text.duration(float(timed["step_ns"].median())), bar(known))))
    line = f"step time {took}, {of}"
    reasons = [*filter(None, (of_recording(run), text.printable(why(known))))]
    rate = float(timed["samples_per_s"].median())
    if run.batch_size is None or np.isnan(rate):
        return [line, *reasons]
    passes = f" in {run.micro_batches:,} micro-batches" if run.micro_batches > 1 else ""
    return [line, *reasons, f"{text.number(rate)} samples/s, {per_rank(run)}{passes}"]


def per_rank(run: Run) -> str:
    """Return the samples of a rank in a step, which are known, and where they are from, unless they were stated."""
    seen = " (in the script's lookups)" if run.batch_size == run.info.step_samples else ""
    return f"{run.batch_size:,} samples per rank{seen}"


def arithmetic(run: Run) -> list[str]:
    """Return the model's FLOP/s of a GPU, MFU and HFU in a line; [] if unknown."""
    found = utilisation_of(run)
    if found is None:
        return []
    gpu = "rank" if run.info.world == "real" else "GPU"
    shares = (
        f", MFU {text.percent(found.mfu)}, HFU {text.percent(found.hfu)} of {text.flop_rate(found.peak_flops_per_s)}"
    )
    peak = "" if np.isnan(found.mfu) else shares
    executed = text.flop_rate(found.hardware_flops_per_s)
    again = f"; {executed} with recomputation" if found.hardware_flops_per_s > found.flops_per_s else ""
    return [f"{text.flop_rate(found.flops_per_s)} of the model per {gpu}{peak} ({', '.join(found.dtypes)}{again})"]


def costs_line(run: Run) -> str:
    """Return the cost of 10^9 samples and the source of prices; "" where neither money nor energy is known."""
    found, prices = costs(run), prices_of(run)
    said, by = [], []
    if not math.isnan(found.usd_per_1e9_samples):
        said.append(f"${text.to_three_digits(found.usd_per_1e9_samples)}")
        by.append(f"${prices['usd_per_gpu_hour']:,.2f} a GPU hour{_source(prices, 'price')}")
    if not math.isnan(found.kwh_per_1e9_samples):
        said.append(f"at most {text.to_three_digits(found.kwh_per_1e9_samples)} kWh")
        pue = f" x PUE {prices['pue']:g}" if prices["pue"] != 1 else ""
        by.append(f"{prices['watts_per_gpu']:,g} W a GPU{pue}{_source(prices, 'power')}")
    return f"{' and '.join(said)} per 10^9 samples: {'; '.join(by)}" if said else ""


def _source(prices: Mapping[str, Any], what: str) -> str:
    known = ", ".join(text.printable(one) for one in (prices[f"{what}_source"], prices[f"{what}_date"]) if one)
    return f" ({known})" if known else ""


def on_cpu(info: RunInfo) -> list[str]:
    """Return a line on the hosts' work in steps concurrently with their GPUs; [] where that was little."""
    return [f"CPU work of the hosts: {'; '.join(map(text.printable, info.on_cpu))}"] if info.on_cpu else []


def tell_left_out(info: RunInfo) -> list[str]:
    """Return a line on the parts of steps that are not predicted; [] where there were none."""
    data, words = info.scenario.get("data"), [*map(text.printable, info.left_out)]
    is_ours = info.world == "sim" and info.scenario.get("program") == "dlrm"
    if is_ours and isinstance(data, Mapping) and not data.get("samples_per_s"):
        words.append("data loading (key data.samples_per_s adds it)")
    return [f"not predicted: {'; '.join(words)}"] if words else []


def sync_words(run: Run) -> list[str]:
    """Return a line on the time of steps that average replicas, and the mean of all; [] where all do, or none."""
    period = sync_period(run)
    if period is None:
        return []
    what = f"every {period.every:,} steps replicas of tables are averaged"
    if not period.steps:
        return [f"{what}, but in no step of this run: expected run.steps of at least {period.every:,}"]
    rate = "" if np.isnan(period.samples_per_s) else f", {text.number(period.samples_per_s)} samples/s"
    took = f"{text.duration(period.sync_ns)} ({text.steps(period.steps)})"
    mean = f"the mean over {period.every:,} is {text.duration(period.mean_ns)}{rate}"
    return [f"{what}: such a step takes {took}; {mean}"]


def only(run: Run) -> str:
    """Return ", seen on N of M ranks" where spans of some ranks were left out; else ""."""
    thinned = run.info.thinned
    if thinned is None or thinned.ranks is None:
        return ""
    return f", seen on {_of_ranks(thinned.ranks, run.info)}"
