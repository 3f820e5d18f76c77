"""What `sharding.choose = "simulated"` gains over the planner's own plan, and what it takes, on random models.

python -m benchmarks.plan_choice [MODELS] [--first SEED]
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from scenarios.config.load import load
from twinstep.plan_choice import choose_plan


def main() -> None:
    """Print a line a model, then medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=int, nargs="?", default=20)
    parser.add_argument("--first", type=int, default=0, help="the first model's seed")
    options = parser.parse_args()
    gains, took = [], []
    print("seed  tables  GPUs  planner's  simulated    gain  plans  CPU s  wall s")
    for seed in range(options.first, options.first + options.models):
        with tempfile.TemporaryDirectory() as folder:
            tables, hosts, text = model(seed)
            file = Path(folder, "model.toml")
            file.write_text(text)
            begin, began = time.process_time(), time.perf_counter()
            choice = choose_plan(load(file), Path(folder))
            took.append(time.process_time() - begin)
            wall_s = time.perf_counter() - began
        gains.append(choice.gain)
        times = f"{choice.tried[0].step_ns / 1e6:7.2f} ms {choice.best.step_ns / 1e6:7.2f} ms"
        print(
            f"{seed:4} {tables:7} {8 * hosts:5} {times} {choice.gain:7.1%} {len(choice.tried):6} {took[-1]:6.1f}"
            f" {wall_s:7.1f}  {choice.best.name}",
            flush=True,
        )
    print(f"median gain {statistics.median(gains):.1%}, least {min(gains):.1%}; at most {max(took):.0f} s of CPU")


def model(seed: int) -> tuple[int, int, str]:
    """Tables, hosts of 8 GPUs, and the scenario."""
    draw = random.Random(seed)
    tables, hosts = draw.randrange(100, 801), draw.choice([1, 2, 4, 8, 16])
    dim = draw.choice([64, 128])
    lines = [
        f"""program = "dlrm"
[run]
steps = 3
batch_size = {draw.choice([256, 512, 1024])}
payload = "sizes"
fidelity = "links"
[cluster]
profile = "{draw.choice(["dgx_h100", "dgx_a100"])}"
hosts = {hosts}
gpus_per_host = 8
[model]
dense_features = 256
bottom = [512, {dim}]
top = [1024, 512, 1]
embedding_dim = {dim}
interaction.kind = "dot"
"""
    ]
    most_rows = 7.7 if hosts > 2 else 6.9
    for number in range(tables):
        rows, ids = int(10 ** draw.uniform(3, most_rows)), max(1, int(10 ** draw.uniform(0, 1.9)))
        skew = draw.choice(["", "", "ids = {zipf = 1.05}\n"])
        lines.append(f'[[model.tables]]\nname = "t{number}"\nrows = {rows}\nids_per_sample = {ids}\n{skew}')
    return tables, hosts, "\n".join(lines)


if __name__ == "__main__":
    main()
