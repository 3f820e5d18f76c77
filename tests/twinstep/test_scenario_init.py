"""`twinstep init`: from a file of tables to a scenario that is predicted as it is, by options and by questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scenarios.config.load import load
from scenarios.config.scenario import Recommender, Scenario
from tests.commands import command, unfold
from twinstep.scenario_draft import CHECK

TABLES = "name,rows,dim,ids_per_sample\nuser,5000,64,1\nitem,9000,64,20.5\n"
MIXED = "name,rows,dim,ids_per_sample,count\nuser,5000,64,,\nitem,9000,,2.5,30\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(tables: str, *words: object) -> tuple[list[str], str]:
    """What the command prints, and the file that it writes."""
    Path("tables.csv").write_text(tables)
    done = command("twinstep", "init", "--tables", "tables.csv", *words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = unfold(done.stdout).splitlines()
    return lines, Path(lines[0].partition(": ")[0]).read_text()


def refuse(*words: object) -> list[str]:
    before = sorted(Path().rglob("*"))
    done = command("twinstep", "init", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(Path().rglob("*")) == before
    return done.stderr.splitlines()


def scenario(file: str = "job.toml", **overrides: object) -> Scenario:
    return load(file, {key.replace("__", "."): value for key, value in overrides.items()})


def test_what_the_file_says_is_what_was_asked_for() -> None:
    lines, text = make(TABLES, "--profile", "dgx_a100", "--hosts", 3, "--batch-size", 512, "--out", "a100.toml")
    assert lines == [
        "a100.toml: 2 tables (3.42 MiB in float32) on 3 x 8 A100 SXM 80 GB",
        "check first: batch_size (line 7), dense_features (line 21), bottom (line 22),",
        "interaction (line 23), top (line 24), kind (line 32)",
        "next: twinstep predict a100.toml",
        "then: twinstep plan a100.toml, which looks for a faster plan of the tables",
    ]
    one = scenario("a100.toml")
    cluster = one.cluster
    assert (cluster.profile, cluster.hosts, cluster.host.gpus, one.run.batch_size) == ("dgx_a100", 3, 8, 512)
    model = Recommender.of(one.workload).model
    assert [(one.rows, one.dim, one.ids_per_sample) for one in model.tables] == [(5000, 64, 1), (9000, 64, 20.5)]
    assert (model.interaction.kind, model.bottom[-1], model.optimizer.kind) == ("dot", 64, "adagrad")
    marked = [number for number, line in enumerate(text.splitlines(), 1) if f"# {CHECK}:" in line]
    assert [n if n != 31 else 32 for n in marked] == [7, 21, 22, 23, 24, 32]


def test_what_the_table_file_lacks_is_assumed_and_the_file_says_so() -> None:
    lines, text = make(MIXED)
    assert "embedding_dim (line 19), ids_per_sample (line 20)" in " ".join(lines)
    assert "# CHECK: assumed for 1 line of the file, as TorchRec's planner does" in text
    assert "# CHECK: elements per row of tables without dim (1 line)" in text
    model = Recommender.of(scenario().workload).model
    assert [(one.dim, one.ids_per_sample) for one in model.tables] == [(64, 1), *[(128, 2.5)] * 30]
    assert model.interaction.kind == "cat"
    Path("tables.csv").write_text(MIXED.replace("64,,", "64,7,"))  # what the file has counts
    assert scenario().workload.tables[0].ids_per_sample == 7


def test_paths_are_relative_to_the_scenario(folder: Path) -> None:
    (folder / "jobs").mkdir()
    own = (Path(load.__code__.co_filename).parents[1] / "profiles" / "t4_pcie.toml").read_text()
    (folder / "mine.toml").write_text(own)
    lines, text = make(TABLES, "--profile", "mine.toml", "--out", "jobs/job.toml")
    assert 'tables = "../tables.csv"' in text
    assert 'profile = "../mine.toml"' in text
    assert scenario("jobs/job.toml").cluster.host.gpu.name in lines[0]


@pytest.mark.parametrize("profile", ["dgx_h100", "cpu_local"])
def test_every_key_that_is_commented_out_can_be_used(profile: str) -> None:
    _, text = make(TABLES, "--profile", profile, "--hosts", 2)
    lines = text.splitlines()
    keys = [n for n, line in enumerate(lines) if line.startswith("# ") and " = " in line.partition("  ")[0]]
    names = [lines[n].split()[1] for n in keys]
    assert names == ["nic.rate", "dense", "dense_optimizer", "tf32", "plan", "types"]
    for number, name in zip(keys, names, strict=True):
        if name not in ("dense", "plan", *(("tf32",) if profile == "cpu_local" else ())):  # files of the user's own
            Path("tried.toml").write_text("\n".join([*lines[:number], lines[number][2:], *lines[number + 1 :]]))
            assert scenario("tried.toml") != scenario()
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize("table", [TABLES, MIXED])
def test_the_interaction_of_dcnv2_can_be_copied_from_its_comment(table: str) -> None:
    _, text = make(table)
    (line,) = (line for line in text.splitlines() if line.startswith("interaction"))
    (dcn,) = re.findall(r"or (\{kind=.*?\})", line)
    Path("tried.toml").write_text(text.replace(line, f"interaction = {dcn}"))
    assert Recommender.of(scenario("tried.toml").workload).model.interaction.kind == "dcn"


def test_tables_that_do_not_fit_say_how_many_hosts_do() -> None:
    rows = 5 * 79 * 2**30 // 256  # five GPUs' memory
    head, one, other = "name,rows,dim,ids_per_sample,kernel", f"big,{rows},64,1,", f"bag,{rows},64,1,"
    for number, (hosts, kernel, said) in enumerate(
        [
            (2, "", []),
            (1, "", ["at least 2 hosts are needed, or a column kernel with fused_uvm_caching for large tables"]),
            (1, "fused_uvm_caching", []),
        ]
    ):
        words = ("--hosts", hosts, "--out", f"{number}.toml")
        lines, _ = make(f"{head}\n{one}\n{other}{kernel}\n", *words)
        assert [line.partition("leave them: ")[2] for line in lines if line.startswith("note")] == said


def test_mistakes_are_sentences_and_nothing_is_written(folder: Path) -> None:
    (folder / "tables.csv").write_text(TABLES)
    (folder / "bad.csv").write_text(TABLES.replace("9000", "-1"))
    (folder / "taken.toml").write_text("")
    assert refuse("--hosts", 0, "--profile", "dgx_h10", "--out", "taken.toml") == [
        "--tables: missing; expected a CSV or Parquet file with the columns name, rows, dim and ids_per_sample",
        "--profile = dgx_h10: expected a profile such as dgx_h100, dgx_a100, dgx2_v100, or a path that ends in .toml",
        "--hosts = 0: expected a whole number of at least 1",
        "--out = taken.toml: exists already; nothing is ever overwritten, give another file",
    ]
    assert refuse("--tables", "no.csv", "--out", "job") == [
        "--tables = no.csv: expected no.csv to be a file",
        "--out = job: expected a path that ends in .toml",
    ]
    assert refuse("--tables", "bad.csv") == ["bad.csv: line 3: rows = -1: expected a whole number of at least 1"]
    (said,) = refuse("--tables", "tables.csv", "--profile", "quux")
    assert said.startswith("--profile = quux: expected one of a100_pcie, ")
    assert "template" not in said
    assert refuse() == [
        "--tables: missing; expected a CSV or Parquet file with the columns name, rows, dim and ids_per_sample"
    ]


def answering(monkeypatch: pytest.MonkeyPatch, answers: Iterator[str]) -> list[str]:
    """The prompts, in order, of a terminal that gives these answers."""
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    return prompts


def test_without_options_a_terminal_asks_five_questions_with_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tables.csv").write_text(TABLES)
    prompts = answering(monkeypatch, iter([""] * 5))
    assert command("twinstep", "init").returncode == 0
    assert [prompt[prompt.rindex("[") :] for prompt in prompts] == [
        *("[tables.csv]: ", "[dgx_h100]: ", "[2]: ", "[2048]: ", "[job.toml]: ")
    ]
    assert scenario().cluster.world_size == 16


def test_a_wrong_answer_is_asked_again_and_none_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("t.csv").write_text(TABLES)
    given = ["no.csv", "t.csv", "h100", "h100_pcie", "none", "0", "1", "64", "t.csv", "my.toml"]
    prompts = answering(monkeypatch, iter(given))
    done = command("twinstep", "init")
    assert (done.returncode, len(prompts)) == (0, len(given))
    assert "h100: expected a profile such as " in done.stdout
    assert scenario("my.toml").cluster.hosts == 1
    answering(monkeypatch, iter(["t.csv"]))
    done = command("twinstep", "init")
    assert (done.returncode, done.stderr.count("expected an answer")) == (2, 1)


@pytest.mark.parametrize("answers", range(5))
def test_ctrl_c_at_a_question_writes_nothing(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def given() -> Iterator[str]:
        yield from [""] * answers
        raise KeyboardInterrupt

    Path("tables.csv").write_text(TABLES)
    answering(monkeypatch, given())
    done = command("twinstep", "init")
    assert (done.returncode, done.stderr) == (130, "interrupted; nothing was written\n")
    assert [*Path().iterdir()] == [Path("tables.csv")]
