"""Good scenario files, and the bad ones that `tests/data/bad_scenarios` makes of them.

A case there begins with `== its name: the good file`. A line `- ...` is replaced by the lines `+ ...` after it; those
that replace none stand at the end, and so do those after `...`. Each `> ...` is a sentence about the file.
"""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[3] / "data" / "bad_scenarios"


CLUSTER = '[cluster]\nprofile = "cpu_local"\nhosts = 2\n'
_LAYERS = 'dense_features = 4\nbottom = [8, 8]\ntop = [8, 1]\ninteraction = {kind = "cat"}\nembedding_dim = 8\n'
TABLE = '[[model.tables]]\nname = "a"\nrows = 10\nids_per_sample = 1\n'
DLRM = f'program = "dlrm"\n[run]\nbatch_size = 4\n{CLUSTER}[model]\n{_LAYERS}{TABLE}'
EXCHANGE = f'program = "all_to_all"\n{CLUSTER}[exchange]\nsize = "1 MiB"\n'
COLLECTIVE = f'program = "collective"\n{CLUSTER}[collective]\nop = "all_reduce"\nsize = "1 MiB"\n'
POWERSGD = f'program = "powersgd"\n{CLUSTER}[gradients]\nshapes = [[4, 4]]\n'
INLINE = """[cluster]
hosts = 2
gpus_per_host = 2
cores = 4
host_memory = "8 GiB"
gpu = {kind = "cuda", memory = "1 GiB", memory_rate = "1 TB/s", flops = {float32 = "1 TFLOP/s"}}
inside = {kind = "nvlink", rate = "1 GB/s", latency = "1 us"}
nic = {per = "gpu", rate = "1 GB/s", latency = "1 us"}
"""
A2A_INLINE = EXCHANGE.replace(CLUSTER, INLINE)
PROFILES = (
    "a100_pcie, a100_pcie_40gb, a30_pcie, a40_pcie, cpu_local, dgx1_v100, dgx2_v100, dgx_a100, dgx_a100_40gb,"
    " dgx_h100, emulated_200mbit, gb200_nvl72, gb300_nvl72, h100_pcie, h200_nvl, hgx_b300, hgx_h200, l40_pcie,"
    " l40s_pcie, l4_pcie, p6_b200, t4_pcie, template, v100_pcie, v100_tcp_10g"
)
WHOLE = "a whole number of at least 1"


def edit(text: str, old: str, new: str) -> str:
    """`text` with one place changed; the place must be there."""
    assert text.count(old) == 1, (old, text)
    return text.replace(old, new)


GOOD = {
    "nothing": "",
    "dlrm": DLRM,
    "dlrm on GPUs": edit(DLRM, CLUSTER, INLINE),
    "all_to_all": EXCHANGE,
    "all_to_all on GPUs": A2A_INLINE,
    "collective": COLLECTIVE,
    "powersgd": POWERSGD,
}

UTMOST = {  # files that go up to the bounds, and are good
    "exchange": edit(EXCHANGE, "1 MiB", f"{2**60 - 4} B") + "splits = 'random'\nskew = 100\n[run]\nsteps = 1000000000\n"
    f"seed = {2**63 - 1}\ntimeout = '1000 h'\n[cluster.network]\nlatency = '1 s'\n",
    "cluster": edit(edit(A2A_INLINE, "hosts = 2", "hosts = 131072"), "gpus_per_host = 2", "gpus_per_host = 8")
    .replace("1 GB/s", "1 EB/s")
    .replace("1 TB/s", "8 kbit/s")
    .replace("cores = 4", "cores = 4\npayload_share = 0.01"),
    "model": edit(DLRM, "embedding_dim = 8", "embedding_dim = 8\noptimizer = {learning_rate = 1e6}").replace(
        "ids_per_sample = 1\n", "ids_per_sample = 1000000\nids = {zipf = 100}\n"
    ),
    "seed": POWERSGD + "[compression]\nkind = 'batched_powersgd'\nrandom_seed = 4294967295\n",
}

# What lies beside a bad file.
OTHER_FILES = {
    "good.csv": "1 2\n\n3\n",
    "outside.csv": "1 2\n\n9 10\n",
    "commas.csv": "1,2\n",
    "blank.csv": "\n\n",
    "good_part.toml": '[exchange]\nsize = "1 MiB"\n',
    "odd_profile.toml": 'program = "dlrm"\n' + edit(INLINE, "cores = 4", 'cores = 0\nprofile = "dgx_h100"'),
    "parts/one.toml": "include = 'two.toml'\n",
    "parts/two.toml": "include = '../bad.toml'\n",
    "parts/bad_part.toml": "program = 'all_to_all'\n[exchange]\nsize = '1 MiBi'\n",
}


def bad_files() -> dict[str, tuple[str, list[str]]]:
    """Return the text of each bad file, and the sentences about it, by the case's name."""
    cases = [case for path in sorted(DATA.glob("*.txt")) for case in path.read_text().split("== ")[1:]]
    found = {}
    for case in cases:
        title, *lines = case.splitlines()
        name, _, good = title.partition(": ")
        assert name not in found, name
        found[name] = _change(GOOD[good], lines), [line[2:] for line in lines if line.startswith("> ")]
    return found


def _change(good: str, lines: list[str]) -> str:
    changed: list[str] = []
    left = good.splitlines()
    if not lines[0].startswith("- "):
        lines = ["...", *lines]
    for line in lines:
        if line == "...":
            changed += left
            left = []
        elif line.startswith("- "):
            place = left.index(line[2:])
            changed += left[:place]
            left = left[place + 1 :]
        elif line.startswith("+"):
            changed.append(line[2:])
    return "".join(f"{line}\n" for line in changed + left)
