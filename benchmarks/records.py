"""`python -m benchmarks.records CLONE [NAME ...]`: steps of GPT-2 under torch.compile, from a public speedrun's logs.

CLONE is one of github.com/KellerJordan/modded-nanogpt, whose logs on 8 H100 each contain the script that ran, torch's
version and the mean time of a step. Nothing is fitted to them. Tokens are random, in the original's format. Scripts
that divide their optimizer's work unevenly over the ranks are left out: their eight ranks need more than 24 GiB.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.eager_steps import play, step_ms
from reports.run import Run

# Records of torch 2.5, and of torch 2.4, whose compiler was slower: the same code took 153.8 ms, and with 2.5 141.8 ms.
NAMES = (*("2024-10-18_PyTorch25", "2024-11-03_UntieEmbed", "2024-11-06_ShortcutsTweaks", "2024-11-10_UNetDoubleLr"),)
OLDER = ("2024-10-10_Muon", "2024-10-14_ModernArch", "2024-10-17_DistributedMuon")
_ON = ("--profile", "dgx_h100", "--hosts", "1", "--gpus-per-host", "8", "--ranks", "alike", "--steps", "3")
_MAGIC, _VERSION, _END_OF_TEXT = 20240520, 1, 50256
_TOKENS, _DOCUMENT = {"train_000001": 20_000_000, "val_000000": 12_000_000}, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A script, and the median of its logs' mean steps in ms."""

    name: str
    script: str
    step_ms: float

    def predict(self, folder: Path) -> Run:
        """Return the predicted run of the script; `folder` gets its files."""
        place = folder / self.name
        (place / "logs").mkdir(parents=True)
        _write_tokens(place / "data" / "fineweb10B")
        script = place / "train_gpt.py"
        script.write_text(self.script)
        return play([str(script)], _ON, place / "run", inside=place)


def read(clone: Path, names: Sequence[str] = NAMES) -> Iterator[Record]:
    """Yield the records of these names."""
    for name in names:
        logs = [each.read_text(errors="replace") for each in sorted(clone.glob(f"records/track_1_short/{name}/*.txt"))]
        if not logs:
            raise SystemExit(f"{clone}: records/track_1_short/{name}: expected logs, *.txt")
        parts = re.split(r"^={60,}\n", logs[0], flags=re.MULTILINE)
        script = next(part for part in parts if "import torch" in part)
        steps = [float(re.findall(r"step_avg:([\d.]+)ms", log)[-1]) for log in logs]
        yield Record(name=name, script=script, step_ms=median(steps))


def _write_tokens(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part, count in _TOKENS.items():
        header = np.zeros(256, np.int32)
        header[:3] = _MAGIC, _VERSION, count
        tokens = np.random.default_rng(0).integers(_END_OF_TEXT, size=count, dtype=np.uint16)
        tokens[::_DOCUMENT] = _END_OF_TEXT
        with (folder / f"fineweb_{part}.bin").open("wb") as file:
            file.write(header.tobytes() + tokens.tobytes())


def main() -> None:
    """Print each record's measured and predicted step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("names", metavar="NAME", nargs="*", default=[*OLDER, *NAMES])
    options = parser.parse_args()
    for record in read(options.clone, options.names):
        with TemporaryDirectory() as folder:
            predicted_ms = step_ms(record.predict(Path(folder)))
        error = predicted_ms / record.step_ms - 1
        print(f"{record.name:<28}{record.step_ms:7.1f} ms, predicted{predicted_ms:7.1f} ms, {error:+.1%}", flush=True)


if __name__ == "__main__":
    main()
