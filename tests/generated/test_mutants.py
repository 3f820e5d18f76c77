from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_files_that_went_wrong_are_refused_in_a_sentence_or_simulated() -> None:
    command = [sys.executable, "-m", "tests.generated.mutants", "--count", "8", "--seed", "20"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
