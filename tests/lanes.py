"""The lanes of tests: what a test needs, and how many examples Hypothesis tries."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hypothesis import settings

# Everything in these needs what the marker says.
REAL = (
    "contract/test_reductions.py",
    "properties",
    "real/check",
    "real/ddp",
    "real/emulate",
    "real/launch",
    "real/script",
    "real/supervise",
    "twinstep/validation",
)
EMULATED = ("real/emulate",)
# What the tests of check-fast leave out besides: modules that take a worker more than 8 s there.
WHOLE = (
    "benchmarks",
    "generated",
    "mutations",
    "real/calibration/network/test_crowded_cores.py",
    "reports/sections/run/test_report.py",
    "reports/sections/test_every_report.py",
    "reports/terminal/test_width.py",
    "reports/test_folded_runs.py",
    "reports/test_report.py",
    "scenarios/test_no_compiler.py",
    "scenarios/workloads/dlrm/test_accumulation.py",
    "scenarios/workloads/dlrm/test_pipelines.py",
    "scenarios/workloads/dlrm/test_replication.py",
    "scenarios/workloads/test_launches.py",
    "sim/nccl/test_flow_arrays.py",
    "sim/test_dlrm",
    "sim/test_every_call",
    "sim/test_gpu",
    "sim/test_kernels_csv.py",
    "sim/test_links_against_flows.py",
    "sim/test_partial_runs.py",
    "sim/test_program_recording",
    "sim/test_script",
    "test_docs_script.py",
    "test_examples.py",
    "test_fingerprints.py",
    "test_interruption.py",
    "test_notebook.py",
    "test_stranger.py",
    "test_whole_way.py",
    "twinstep/jobs/test_command.py",
    "twinstep/plan_choice/test_choice.py",
    "twinstep/plan_choice/test_comparison.py",
    "twinstep/published/test_simulated.py",
    "twinstep/regret",
    "twinstep/reporting/test_cli.py",
    "twinstep/studies/search/test_journal.py",
    "twinstep/test_facade.py",
    "twinstep/test_main.py",
    "twinstep/test_own_rooms.py",
    "twinstep/test_package.py",
    "twinstep/test_scenario_files.py",
    "twinstep/test_study.py",
    "twinstep/what_ifs",
    "vectors/test_runner.py",
)

# Modules that wait for other processes: they begin first, before those that only compute. Scripts' ranks, those of a
# launch, and those of the pool fork from a server of their worker, which takes 3 s to start: one worker has each kind.
SCRIPTED = (
    "benchmarks/test_published",
    "real/calibration/test_program_cost.py",
    "real/emulate",
    "real/job",
    "real/launch",
    "real/script",
    "sim/test_chakra_writing.py",
    "sim/test_compute_times.py",
    "sim/test_eager_steps.py",
    "sim/test_every_call",
    "sim/test_gpu",
    "sim/test_recomputation.py",
    "sim/test_script",
    "sim/test_torchrec",
    "test_whole_way.py",
    "twinstep/calibration",
    "twinstep/plan_choice/test_script_job.py",
    "twinstep/regret",
    "twinstep/test_facade.py",
    "twinstep/validation",
    "twinstep/what_ifs",
)
POOLED = (
    "contract",
    "properties",
    "real/calibration/kernels",
    "real/ddp",
    "real/rank",
    "scenarios/workloads/dlrm/test_grouped_all_reduce.py",
    "scenarios/workloads/dlrm/test_pipelines.py",
    "sim/test_dlrm_host_memory.py",
    "sim/test_dlrm_worlds.py",
    "test_examples.py",
    "vectors",
)
WAITING = ("real", "test_")
# Modules of all that numba compiles.
COMPILING = (
    "scenarios/quantized/test_codec.py",
    "scenarios/sparse/test_bucketize.py",
    "scenarios/workloads/dlrm/tables/test_embedding.py",
    "sim/engine/test_max_min_compiled.py",
)
# Modules that take longest, in seconds of a core from 70 down to 9: they go first, so that workers end together.
LONGEST = (
    "reports/page/test_in_browser.py",
    "sim/test_program_recording.py",
    "scenarios/workloads/dlrm/test_pipelines.py",
    "test_whole_way.py",
    "sim/test_dlrm_worlds.py",
    "reports/page/study/test_in_browser.py",
    "real/ddp/test_hooks.py",
    "twinstep/plan_choice/test_comparison.py",
    "vectors/test_vectors.py",
    "real/launch/test_launcher.py",
    "real/script/test_measured.py",
    "sim/test_script_recording.py",
    "sim/test_program_recording_file.py",
    "sim/test_script_kernels.py",
    "test_examples.py",
    "test_fingerprints.py",
    "twinstep/what_ifs/test_proposed_changes.py",
    "twinstep/what_ifs/test_what_if.py",
    "twinstep/reporting/test_cli.py",
    "twinstep/test_own_rooms.py",
    "twinstep/plan_choice/test_choice.py",
    "twinstep/regret/test_cli.py",
    "twinstep/jobs/test_command.py",
    "sim/test_dlrm_fbgemm.py",
    "sim/test_dlrm_steps.py",
    "sim/test_gpu_script.py",
    "scenarios/workloads/dlrm/test_replication.py",
    "scenarios/workloads/dlrm/test_accumulation.py",
    "sim/test_dlrm_host_memory.py",
    "test_interruption.py",
    "scenarios/test_no_compiler.py",
)

# How long an example takes depends on what else the machine does.
settings.register_profile("suite", deadline=None)
settings.register_profile("check", deadline=None, max_examples=30)
settings.register_profile("quick", deadline=None, max_examples=10)


def examples(count: int, **more: Any) -> settings:
    """Settings of `count` examples, where the profile's own number is 100; of as many fewer where that is."""
    return settings(max_examples=max(1, count * settings().max_examples // 100), **more)


def why_no_fbgemm() -> str:
    """Return why tests cannot run fbgemm's operators here; empty if they can. A release is built for one of torch."""
    if find_spec("fbgemm_gpu") is None:
        return "needs fbgemm-gpu-cpu"
    torch = import_module("torch")
    try:
        with warnings.catch_warnings(action="ignore"):  # of parts that its build lacks
            import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        _ = torch.ops.fbgemm.dense_embedding_codegen_lookup_function  # a library that fails may leave a log line only
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        releases = "1.6.0 is for 2.11, 1.8.0 for 2.13"
        return f"fbgemm_gpu does not load with torch {torch.__version__} ({releases}): {type(error).__name__}: {error}"
    return ""
