"""Cases that a recording may hold and the project's own do not; their outcomes follow by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.vectors.test_runner import Content, failures, one_case, the_case, write
from tests.vectors.test_vectors import OWN


def a_bias_alone() -> tuple[Content, dict[str, Any]]:
    """A layerwise case of one rank whose only gradient is never a matrix: what comes is what was given."""
    content, numel, id_ = one_case("layerwise_powersgd.json"), 5, "bias"
    steps, arrays = [], {}
    for step in range(4):
        compressed = step >= 2
        row = {"bucket": 0, "is_last": True, "param_order": [0], "numel": numel, "n_draws": 0}
        calls = [[count, "float32", 4 * count, "hook"] for count in ((numel, 0, 0) if compressed else (numel,))]
        buckets = [{**row, "compressed": compressed, "out_equal_on_all_ranks": True}]
        steps.append({"iter_before": step, "iter_after": step + 1, "allreduce": calls, "buckets": buckets})
        given = np.arange(numel, dtype=np.float32) + step
        arrays |= {f"{id_}/s{step}/b0/in": given[None], f"{id_}/s{step}/b0/out": given}
        if compressed:
            arrays[f"{id_}/s{step}/b0/q"] = np.zeros(0, dtype=np.float32)
    arrays[f"{id_}/s3/b0/err"] = np.zeros((1, numel), dtype=np.float32)
    changes = {"id": id_, "ws": 1, "param_shapes": [[numel]], "steps_requested": 4, "steps_recorded": 4, "steps": steps}
    stats = {"state_kwargs": {"start_powerSGD_iter": 2}, "compression_stats": [1.0, 10, 10], "stats_ref": [10, 10]}
    content["cases"] = [{**the_case(content), **changes, **stats}]
    return content, arrays


def test_a_hook_takes_a_seed_also_where_it_draws_nothing(tmp_path: Path) -> None:
    content, arrays = a_bias_alone()
    (tmp_path / "f.json").write_text(json.dumps(content))
    np.savez(tmp_path / "f.npz", **arrays)
    assert failures(tmp_path) == {}
    np.savez(tmp_path / "f.npz", **{name: array for name, array in arrays.items() if array.size})
    assert failures(tmp_path) == {}


def test_an_error_is_as_exact_as_the_output_that_it_is_left_of(tmp_path: Path) -> None:
    content, arrays = a_bias_alone()
    (tmp_path / "f.json").write_text(json.dumps(content))
    for error, found in ((1e-4, 0), (3e-4, 1)):  # 2e-5 of the output's 7 is 1.4e-4
        arrays["bias/s3/b0/err"] = np.full((1, 5), error, dtype=np.float32)
        np.savez(tmp_path / "f.npz", **arrays)
        assert len(failures(tmp_path)) == found


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "complex32", "bool"])
@pytest.mark.parametrize("world", ["sim", "real"])
def test_rows_of_every_dtype_are_exchanged(tmp_path: Path, dtype: str, world: str) -> None:
    content = one_case("all_to_all.json")
    numbers: list[Any] = [[1.5, -2.0], [0.0, 1.0]] if dtype == "complex32" else [1, 0]
    rank = {"input": numbers, "output": numbers, "input_splits": [2], "output_splits": [2], "list_form": "ok"}
    case = {**the_case(content), "world": 1, "dtype": dtype, "trailing": [], "splits": [[2]], "ranks": [rank]}
    content["cases"] = [{**case, "all_ranks_raise": False}]
    write(tmp_path, "a.json", content)
    assert failures(tmp_path, world) == {}


@pytest.mark.parametrize(("dtype", "value"), [("bool", 2), ("int8", 1.5), ("int8", 300), ("float16", 0.1)])
def test_an_element_that_its_dtype_does_not_hold_fails(tmp_path: Path, dtype: str, value: float) -> None:
    content = one_case("all_to_all.json")
    rank = {"input": [value], "output": [value], "input_splits": [1], "output_splits": [1], "list_form": "ok"}
    case = {**the_case(content), "world": 1, "dtype": dtype, "trailing": [], "splits": [[1]], "ranks": [rank]}
    content["cases"] = [{**case, "all_ranks_raise": False}]
    write(tmp_path, "a.json", content)
    (sentence,) = failures(tmp_path).values()
    assert ".ranks[0].input: " in sentence
    assert dtype in sentence


def test_even_chunks_of_uneven_batches_are_scattered(tmp_path: Path) -> None:
    """And empty rows are not."""
    content = one_case("twrw_output_dist.json")
    case = {"id": "even", "tag": "", "world_size": 4, "local_size": 2, "batch_per_rank": [1, 2, 2, 1]}
    ones = [[[1.0]] * 6 if rank < 2 else [[]] * 6 for rank in range(4)]
    outputs = [[[2.0]] * batch for batch in (1, 2, 2, 1)]
    content["cases"] = [{**case, "dim_sum_per_node": [1, 0], "inputs": ones, "outputs": outputs}]
    write(tmp_path, "o.json", content)
    assert failures(tmp_path) == {}


@pytest.mark.parametrize("weighted", [False, True], ids=["need_pos_without_weights", "processor_with_weights"])
def test_a_note_on_positions_says_nothing_of_features_that_send_none(tmp_path: Path, weighted: bool) -> None:
    content: Content = json.loads((OWN / "twrw_dist.json").read_text())
    cases = {case["id"]: case for case in content["cases"]}
    case, options = cases["D021" if weighted else "D000"], {"need_pos": not weighted, "has_feature_processor": weighted}
    content["cases"] = [{**case, **options, "note": cases["D062"]["note"]}]
    write(tmp_path, "t.json", content)
    assert failures(tmp_path) == {}


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_exchange_of_nothing_sends_headers_and_notices(tmp_path: Path, ranks: int) -> None:
    """Measured on torch 2.13: 144 bytes each way, by all_to_all and by all_to_all_single with splits and without."""
    content = one_case("gloo_wire_bytes.json")
    rows = [[0 if source == target else 144 for target in range(ranks)] for source in range(ranks)]
    record = {"world": ranks, "op": ["all_to_all_zero", 0], "tcp_bytes": rows, "allreduce_calls": None}
    content["records"] = [record]
    write(tmp_path, "g.json", content)
    assert failures(tmp_path) == {}
    rows[0][1] += 1
    write(tmp_path, "g.json", content)
    assert len(failures(tmp_path)) == 1


def test_why_there_is_no_deviation_may_be_said_in_a_text(tmp_path: Path) -> None:
    content = one_case("layerwise_powersgd.json")
    the_case(content)["max_rel_diff_v111"] = "torch 1.11 has no such option"
    write(tmp_path, "l.json", content, source="layerwise_powersgd.json")
    assert failures(tmp_path) == {}
    the_case(content)["max_rel_diff_v111"] = [0.0]
    write(tmp_path, "l.json", content, source="layerwise_powersgd.json")
    assert all("expected a number, a text or null" in sentence for sentence in failures(tmp_path).values())


def test_a_wrong_type_on_a_host_is_refused_as_0_2_0_refuses_it(tmp_path: Path) -> None:
    content = one_case("partitioner.json")
    option = {"name": "t0", "path": "", "dependency": None, "sharding_type": "table_wise", "partition_by": "host"}
    option |= {"compute_kernel": "fused", "num_shards": 1, "shards": [[1]]}
    new = {"status": "error", "exception": "PlannerError", "category": "no_host", "error_type": "partition"}
    new |= {"message": "can't find a host for sharding option group ", "ranks_left_behind": None}
    old = {**new, "exception": "RuntimeError", "category": "cohost", "error_type": None}
    old["message"] = "unexpected cohost sharding type: table_wise"
    sizes = {"world_size": 1, "local_world_size": 1, "pod_size": None, "devices": [[10]], "hbm_per_device": None}
    case = {**the_case(content), **sizes, "sort_by": "storage", "balance_modules": False, "options": [option]}
    content["cases"] = [{**case, "expected": new, "expected_v0_2_0": old}]
    write(tmp_path, "p.json", content)
    assert failures(tmp_path) == {}
    content["cases"][0]["expected_v0_2_0"]["message"] = "unexpected cohost sharding type: row_wise"
    write(tmp_path, "p.json", content)
    assert list(failures(tmp_path)) == ["p.json-P0000-0.2.0"]
