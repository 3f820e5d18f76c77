"""Scripts named on the command line, whatever letters their folders have."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.seam.errors import ScenarioError
from scenarios.workloads.script.command import load_given


def test_a_path_of_any_letters_is_read_whatever_the_locale_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "\u00fc \U0001f600" / "train.py"
    script.parent.mkdir()
    script.write_text("import torch\n")
    monkeypatch.setattr("io.text_encoding", lambda encoding, *_: encoding or "latin-1")
    scenario = load_given(script, {}, args=["\u00fc"], hosts=1, gpus_per_host=2)
    assert (scenario.options.path, scenario.options.args) == (script, ("\u00fc",))


def test_a_path_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    script = tmp_path / "train\udcff.py"
    with pytest.raises(ScenarioError, match="expected a path and arguments in UTF-8"):
        load_given(script, {}, args=[], hosts=1, gpus_per_host=2)


def test_options_after_the_script_are_its_own_and_a_note_has_them_before_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (script := tmp_path / "train.py").write_text("import torch\n")
    scenario = load_given(script, {}, args=["2", "--hosts", "2", "--lr", "0.1", "--profile", "dgx_h100"])
    assert scenario.options.args == ("2", "--hosts", "2", "--lr", "0.1", "--profile", "dgx_h100")
    assert " ".join(capsys.readouterr().err.split()) == (
        "note: --hosts and --profile after the script: the script gets what follows it; expected --hosts 2 --profile"
        f" dgx_h100 {script} 2 --lr 0.1"
    )


@pytest.mark.parametrize("key", ["recording.file", "script.recording", "chakra.traces", "cluster.gpu.kernel_table"])
def test_a_path_about_which_the_system_answers_only_with_an_error_is_a_sentence(key: str) -> None:
    unasked = f"{'x' * 300}.parquet"  # the file system takes 255 letters; a folder without permission is refused alike
    with pytest.raises(ScenarioError, match=r"no such file|name too long"):
        load_given(Path(unasked), {})
    with pytest.raises(ScenarioError, match=f"--set {key} = 'xxx"):
        load_given(Path("twrw_2x2"), {key: unasked})
